// Package cluster says who is alive: the brokers and bookies that gossip (memberlist) sees, with their roles and the
// addresses of their services.
//
//	peers ◄── gossip ──► memberlist ── events ──► channel ──► snapshot ──► Members, Subscribe
//	                         ▲                                   │
//	                         └──── join again ◄── whoever of the list is missing
//
// It is a suggestion and never a decision: two members may see different sets, for as long as a partition lasts or a
// process starves. Who owns what is decided by compare-and-set in the metadata and enforced by epochs at the bookies;
// the members seen here only say who should try.
//
// All methods may be called from any goroutine, and none waits for the network except Open (it binds) and Close (it
// takes leave). The set of members that it holds is merged from events, per process: a process is named by its stable
// name and its incarnation, drawn at its start, so the news about a process that is gone never concerns its successor.
// The merge is idempotent, commutative and associative over the processes that are alive (TestNewestLaws).
//
// Non-obvious:
//   - memberlist calls back under its own lock: a callback that asks it anything deadlocks. Ours only send to a channel,
//     whose reader never calls memberlist.
//   - Two halves of a cluster that have declared each other dead forget each other after half a minute and would stay
//     apart for ever; the join loop is what heals them (TestHealsAfterDeclaredDead).
//   - After a restart old and new incarnation may both look alive for some seconds; the newer one counts.
package cluster
