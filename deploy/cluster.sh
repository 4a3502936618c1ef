#!/usr/bin/env bash
# Starts three bookied and two brokerd on loopback addresses and waits until Ctrl-C. The data stays in DATA.
#
#   bookies  127.0.0.1 .2 .3   gRPC 3181, HTTP 8000, gossip 7946
#   brokers  127.0.0.4 .5      Pulsar 6650, HTTP 8080, gossip 7946
#
# Other systems than Linux give lo only 127.0.0.1: add the others first (macOS: ifconfig lo0 alias 127.0.0.2).
set -euo pipefail
cd "$(dirname "$0")/.."
DATA=${DATA:-data/cluster}
members=bookie-1=127.0.0.1:3181,bookie-2=127.0.0.2:3181,bookie-3=127.0.0.3:3181
join=127.0.0.1:7946,127.0.0.2:7946,127.0.0.3:7946
mkdir -p "$DATA"
bookies=()
brokers=()
stop() { # brokers first: they hand their topics over, for which they need the bookies
	trap - EXIT INT TERM
	kill "${brokers[@]}" 2>/dev/null && wait "${brokers[@]}" || true
	kill "${bookies[@]}" 2>/dev/null || true
	wait
}
trap stop EXIT
trap 'stop; exit 0' INT TERM

for n in 1 2 3; do
	if [ ! -e "$DATA/bookie-$n" ]; then
		bin/bookied init --data "$DATA/bookie-$n" --id "bookie-$n" --cluster-id geminga --members "$members"
	fi
	bin/bookied run --data "$DATA/bookie-$n" --set bindAddress=127.0.0.$n --set gossipJoin=$join &
	bookies+=($!)
done
for n in 4 5; do
	bin/brokerd run --set clusterName=geminga --set bookieClusterId=geminga --set bindAddress=127.0.0.$n --set gossipJoin=$join \
		--set metadataStoreUrl=bookied:127.0.0.1:3181,127.0.0.2:3181,127.0.0.3:3181 &
	brokers+=($!)
done
echo "clients: pulsar://127.0.0.4:6650,127.0.0.5:6650 (ready when both brokers have said so); Ctrl-C stops all five"
wait -n || true
echo "one of the five has ended, the line above says why; stopping the others"
exit 1
