package topic

import "time"

const meterWindow = 10 * time.Second

// meter counts messages and bytes, and knows their rate over the last full window.
type meter struct {
	messages, bytes         int64
	since                   time.Time // start of the window that is running
	baseMessages, baseBytes int64     // counts at its start
	rate                    Rate
}

// Rate is per second.
type Rate struct {
	Messages float64
	Bytes    float64
}

func (m *meter) add(now time.Time, messages, bytes int64) {
	m.roll(now)
	m.messages += messages
	m.bytes += bytes
}

// read returns the rate of the last full window, or of the running one as long as there was none.
func (m *meter) read(now time.Time) Rate {
	m.roll(now)
	if m.rate == (Rate{}) {
		if d := now.Sub(m.since); d >= time.Second {
			return m.over(d)
		}
	}
	return m.rate
}

func (m *meter) roll(now time.Time) {
	if m.since.IsZero() {
		m.since = now
		return
	}
	if d := now.Sub(m.since); d >= meterWindow {
		m.rate = m.over(d)
		m.since, m.baseMessages, m.baseBytes = now, m.messages, m.bytes
	}
}

func (m *meter) over(d time.Duration) Rate {
	s := d.Seconds()
	return Rate{float64(m.messages-m.baseMessages) / s, float64(m.bytes-m.baseBytes) / s}
}
