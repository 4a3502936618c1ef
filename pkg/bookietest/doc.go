// Package bookietest is bookies in memory for the tests of everything above them: a Cluster runs the real
// ledger.Machine and metadata.Machine, replicas and journals left out, and its Clients are structurally
// managedledger.Bookies and managedledger.Store. It misbehaves on demand (faults.go).
//
//	managedledger ─▶ Client ─▶ queue of the group ─▶ machine ─▶ answers of the group ─▶ done, Waiter
//	                   ▲ Cut       ▲ Hold, Down       ▲ FailNext    ▲ Delay, LoseAcks      on the cluster's goroutine
//
// One goroutine applies requests and calls back; nothing is called inline, and callbacks must not block on the
// cluster. Requests of one client to one group are applied in order, answers of a group come in order. Clusters work
// inside testing/synctest bubbles: create and Close them there.
//
// All methods of Cluster and Client may be called from any goroutine, also from callbacks.
//
// Non-obvious:
//   - An append that fails breaks its ledger for that client: appends queued behind it vanish with it, and later ones
//     meet the same error, until Abandon. That is what a client of real bookies does.
//   - Abandon does not take back what has been sent: appends abandoned while the group is held are applied when it is
//     released, without anybody being told.
//   - Payloads handed to readers are overwritten after their last Release: use after release shows.
package bookietest
