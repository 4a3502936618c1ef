# One verb per job. GOFLAGS is cleared so that go.mod is never changed behind your back.
export GOFLAGS =
GO       ?= go
BIN      := bin
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2
FUZZTIME ?= 15s
ROUNDS   ?= 40
SWEEPS   ?= 25
SEEDS    ?= 2000
SIMULATIONS ?= 500
DAMAGES  ?= 500
RUN_DATA ?= data/standalone

.PHONY: build run cluster test race fuzz integration client-suite client-suite-fast lint gen gen-check conf images bench storage-bench pgo sweep cost connections properties mutations simulation damage storage restart stress chaos bookies bookies-race campaigns clean

build: ## static binaries in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -pgo=cmd/daemons.pgo -o $(BIN)/ ./cmd/...

run: build ## broker and bookie in one process on 127.0.0.1: 6650 (Pulsar), 8080 (HTTP)
	./$(BIN)/brokerd standalone --data $(RUN_DATA) --set bindAddress=127.0.0.1 --set advertisedAddress=localhost

cluster: build ## three bookied and two brokerd as processes on 127.0.0.1 to .5, until Ctrl-C
	./deploy/cluster.sh

test: gen-check race fuzz integration client-suite-fast ## everything that must pass before a change lands

race: ## unit tests with the race detector, then with invariants compiled in
	$(GO) vet ./...
	$(GO) test -race -timeout 10m ./...
	$(GO) test -tags invariants -timeout 10m ./pkg/...

fuzz: ## frames, then commands (hand decoder against generated one), FUZZTIME each
	$(GO) test ./pkg/protocol -run '^$$' -fuzz '^FuzzFrame$$' -fuzztime $(FUZZTIME)
	$(GO) test ./pkg/protocol -run '^$$' -fuzz '^FuzzCommand$$' -fuzztime $(FUZZTIME)

# The detector would watch the official client here, not the daemons, and triples the time; make chaos builds the daemons with it.
integration: build ## real client, real processes
	cd integration && $(GO) vet ./... && $(GO) test -count=1 -timeout 20m ./...

client-suite: build ## the official client's own tests on a standalone and on a cluster; needs the network when its modules are not cached
	cd integration && $(GO) run ./cmd/clientsuite -bin ../$(BIN) -doc ../docs/compatibility.md

client-suite-fast: build ## those of them that take a second
	cd integration && $(GO) run ./cmd/clientsuite -bin ../$(BIN) -fast

lint: ## golangci-lint at a pinned version, built from source
	GOBIN=$(CURDIR)/$(BIN) $(GO) install $(GOLANGCI)
	GOLANGCI_LINT_CACHE=$(CURDIR)/$(BIN)/lint-cache $(BIN)/golangci-lint run ./...
	cd integration && GOLANGCI_LINT_CACHE=$(CURDIR)/$(BIN)/lint-cache ../$(BIN)/golangci-lint run -c ../.golangci.yml ./...

images: build ## geminga/bookied and geminga/brokerd from scratch, for deploy/docker/compose.yaml
	mkdir -p $(BIN)/image/empty && cp $(BIN)/brokerd $(BIN)/bookied $(BIN)/image
	docker build -q -t geminga/bookied -f deploy/docker/bookied.Dockerfile $(BIN)/image
	docker build -q -t geminga/brokerd -f deploy/docker/brokerd.Dockerfile $(BIN)/image

gen: ## regenerate rpc/ from the .proto files
	$(GO) build -C tools -o ../$(BIN)/gen ./gen && ./$(BIN)/gen

conf: build ## rewrite deploy/conf from the settings that the daemons have
	env -i ./$(BIN)/brokerd config > deploy/conf/brokerd.conf
	env -i ./$(BIN)/bookied config > deploy/conf/bookied.conf

gen-check: ## fail when rpc/ is stale
	$(GO) build -C tools -o ../$(BIN)/gen ./gen && ./$(BIN)/gen -check

bench: build ## throughput and cost of the whole path beside the bare loop
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN)

properties: ## the tests over random operations, SEEDS seeds each
	$(GO) test ./pkg/topic -run '^TestRandom' -timeout 60m -properties.seeds $(SEEDS)

mutations: ## put one fault after the other into the code: each must make a property fail
	$(GO) build -C tools -o ../$(BIN)/mutate ./mutate && ./$(BIN)/mutate pkg/topic

SWEEP_COUNT ?= 300000
COST_COUNT ?= 200000

PROFILES := $(BIN)/profiles
pgo: build ## take anew the profile that build optimises with, from the bench's workloads
	rm -rf $(PROFILES) && mkdir -p $(PROFILES)/key-shared $(PROFILES)/shared $(PROFILES)/publish
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN) -producers 500 -count 1500000 -subscription Key_Shared -consumers 20 -profile ../$(PROFILES)/key-shared
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN) -count 1500000 -consumers 4 -profile ../$(PROFILES)/shared
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN) -count 2000000 -profile ../$(PROFILES)/publish
	$(GO) build -C tools -o ../$(BIN)/pgo ./pgo && ./$(BIN)/pgo cmd/daemons.pgo $(PROFILES)/*/*[0-9].prof

sweep: build ## a row for each numIOThreads, then for each dispatcherMaxReadBatchSize: 500 producers, 20 Key_Shared consumers
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN) -producers 500 -count $(SWEEP_COUNT) sweep

cost: build ## what a delivered message costs, by subscriptions, consumers and acks, and what an unacknowledged one keeps
	cd integration && $(GO) run ./cmd/bench -bin ../$(BIN) -count $(COST_COUNT) cost

storage-bench: ## bookies beside the bare disk, raft-wal and raft-boltdb: appends, latency, reads, memory, in less than eight minutes
	cd integration && $(GO) run ./cmd/storagebench

connections: build ## memory of 10,000 idle connections, and 5,000 clients that all come back at once
	cd integration && $(GO) run ./cmd/connections -bin ../$(BIN)

simulation: ## clusters of bookies in virtual time, with everything broken that can be, SIMULATIONS runs
	$(GO) test ./pkg/bookie -count=1 -timeout 120m -v -run '^TestSimulation' -bookie.sims $(SIMULATIONS)

damage: ## the files of one of three bookies flipped and cut, DAMAGES of each kind of file and way
	$(GO) test ./pkg/bookie -count=1 -timeout 120m -run '^(TestDamage|TestMetaLog.*)$$' -bookie.damages $(DAMAGES) -v | grep -v ' cut '

storage: ## the journal crashed, flipped, cut and compared with a model, with SWEEPS times the usual seeds
	$(GO) test ./pkg/journal -count=1 -timeout 60m -v -run 'TestCrashSweep|TestFaultSweep|TestBitFlips|TestTruncatedFiles|TestRandom|Summar' -journal.sweeps $(SWEEPS)

RESTART_SIZES ?= 1024,5120,10240

restart: build ## what the start of a bookie costs after a kill, with RESTART_SIZES MiB in 10,000 ledgers: 64 KiB entries, then 1 KiB entries one by one
	cd integration && $(GO) run ./cmd/restart -bin ../$(BIN) -sizes $(RESTART_SIZES)
	cd integration && $(GO) run ./cmd/restart -bin ../$(BIN) -sizes $(RESTART_SIZES) -entry 1024

stress: ## every unit test many times, to find flaky ones
	$(GO) test -race -count=20 -timeout 60m ./pkg/...

chaos: ## longer kill campaign against real processes, built with the race detector
	$(GO) build -race -o $(BIN)/race/ ./cmd/...
	cd integration && $(GO) test -count=1 -timeout 60m -run TestChaos -chaos.rounds $(ROUNDS) -bin ../$(BIN)/race -v .

BOOKIE_KILLS  ?= 100
BOOKIE_ALL    ?= 10
BOOKIE_PAUSES ?= 3
BOOKIE_MOVES  ?= 5
BOOKIE_FULL   ?= 3

bookies: build ## longer campaign against bookies alone, three and five: kills, pauses, lost and full disks; every copy of every entry is compared; prints the times
	cd integration && $(GO) test -count=1 -timeout 90m -run TestBookies -v . -bookies.kills $(BOOKIE_KILLS) -bookies.all $(BOOKIE_ALL) \
		-bookies.pauses $(BOOKIE_PAUSES) -bookies.moves $(BOOKIE_MOVES) -bookies.full $(BOOKIE_FULL)

bookies-race: ## the same at a fifth of the size, with daemons that have the race detector and invariants compiled in
	$(GO) build -race -tags invariants -o $(BIN)/race/ ./cmd/...
	cd integration && $(GO) test -count=1 -timeout 90m -run TestBookies -v . -bin ../$(BIN)/race -bookies.kills 20 -bookies.all 4 \
		-bookies.pauses 1 -bookies.moves 2 -bookies.full 1

campaigns: build ## the integration tests that have larger sizes, in these: deduplication, named producers, delayed messages
	cd integration && $(GO) test -count=1 -timeout 60m -full -v -run 'TestDeduplication|TestManyNamed|TestDelayed' .

clean:
	rm -rf $(BIN) data
