package broker

import (
	"geminga/pkg/ledger"
	"geminga/rpc/pulsarpb"
)

// REDELIVER_UNACKNOWLEDGED_MESSAGES gives entries back that the consumer has not acknowledged, the named ones or all.
// There is no answer.
func handleRedeliver(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.RedeliverUnacknowledgedMessages
	k := c.consumers[req.GetConsumerId()]
	if k == nil || k.state != ready {
		return nil
	}
	var positions []ledger.Position // nil: all
	for _, id := range req.MessageIds {
		positions = append(positions, ledger.Position{Ledger: ledger.ID(id.GetLedgerId()), Entry: ledger.EntryID(id.GetEntryId())})
	}
	t := k.topic
	t.Executor().PostFunc(func() { t.Redeliver(positions) })
	return nil
}
