package main

// forClients is how many connections clients may have so that descriptors are left for everything else: the bookies, the
// admin API and its health checks, gossip, files. Without it the clients of a broker that has no brokerMaxConnections take
// all that there are, and a broker that serves them well counts as dead.
//
// files is how many the process may have open, 0 if that is not known; most is brokerMaxConnections, 0 for no limit.
func forClients(files uint64, most int) int {
	if files == 0 || files > unlimited {
		return most
	}
	room := max(int(files)-descriptorsForOthers-int(files/50), int(files/2))
	if most == 0 || most > room {
		return room
	}
	return most
}

// descriptorsForOthers is kept besides a fiftieth. 100 of it are for clients that are let in to be told that there are too
// many.
const descriptorsForOthers = 200
