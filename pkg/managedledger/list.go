package managedledger

// list is the ledger list in the metadata: changes are applied one after another to what was put last, as many as have
// gathered per put.
type list struct {
	m      *ManagedLedger
	record record
	info   Info // as put last
	queue  []change
	flying bool
}

type change struct {
	apply func(*Info)
	done  func()
}

// change applies a change to the list; done comes when it is put. If it cannot be, the managed ledger is lost.
func (l *list) change(apply func(*Info), done func()) {
	l.queue = append(l.queue, change{apply, done})
	if !l.flying {
		l.put()
	}
}

func (l *list) put() {
	changes, info := l.queue, l.info.clone()
	l.queue = nil
	for _, c := range changes {
		c.apply(&info)
	}
	l.m.forgetSwept(&info)
	value, err := info.Encode()
	if err != nil {
		l.m.lose(err)
		return
	}
	l.flying = true
	l.record.put(value, func(err error) {
		l.flying = false
		if !l.m.live() {
			return
		}
		if err != nil {
			l.m.lose(lostIfConflict(err))
			return
		}
		l.info = info
		l.m.listed(&info)
		l.m.sweep()
		for _, c := range changes {
			if l.m.live() {
				c.done()
			}
		}
		if len(l.queue) > 0 && !l.flying && l.m.live() {
			l.put()
		}
	})
}
