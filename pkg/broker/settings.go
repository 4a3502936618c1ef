package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"geminga/pkg/metadata"
	"geminga/pkg/topic"
)

// Settings is where the options of a broker come from, by the names of broker.conf. Any goroutine.
type Settings interface {
	// Dynamic returns the names that can be changed at run time.
	Dynamic() []string
	// With returns the options that come of the broker's own settings with stored ones on top, and every value in force,
	// secrets masked. The error says which names and values it does not take.
	With(stored map[string]string) (o Options, values map[string]string, err error)
}

var (
	// ErrNotDynamic says that a setting cannot be changed at run time.
	ErrNotDynamic = errors.New("Can't update non-dynamic configuration") //nolint:staticcheck // Pulsar's words
	// ErrBadSetting says that a value is refused, and why.
	ErrBadSetting = errors.New("Invalid dynamic-config value") //nolint:staticcheck // Pulsar's words
)

// storedSettings are the settings that an administrator has stored in the metadata, for all brokers. Each broker watches
// them and puts them above its own; what is removed there becomes again what it was at the start. A value that this
// broker does not take, as one of another version may write it, is left out with a warning, and the others count.
type storedSettings struct {
	server *Server
	mu     struct {
		sync.Mutex
		stored map[string]string // by name, as the watch has told so far
		synced bool              // that was all of it
		values map[string]string // in force, of all settings
	}
}

// open takes the broker's own settings.
func (st *storedSettings) open(s *Server) error {
	st.server = s
	st.mu.stored = map[string]string{}
	if s.opts.Settings == nil {
		return nil
	}
	_, values, err := s.opts.Settings.With(nil)
	if err != nil {
		return fmt.Errorf("broker: settings: %w", err)
	}
	st.mu.values = values
	return nil
}

// changed is told by the watch of settings.
func (st *storedSettings) changed(items []metadata.Item, synced bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range items {
		name, ok := metadata.SettingName(items[i].Key)
		if !ok {
			continue
		}
		delete(st.mu.stored, name)
		if items[i].Version == 0 {
			continue
		}
		var info metadata.SettingInfo
		if err := json.Unmarshal(items[i].Value, &info); err != nil {
			st.server.log.Warn("Stored setting does not decode", "setting", name, "error", err)
			continue
		}
		st.mu.stored[name] = info.Value
	}
	if st.mu.synced = st.mu.synced || synced; st.mu.synced {
		st.apply()
	}
}

// apply puts what is stored in force. The lock is held, so that changes are applied in their order.
func (st *storedSettings) apply() {
	good := st.server.accepted(st.mu.stored, func(name string, err error) {
		st.server.log.Warn("Stored setting is not applied", "setting", name, "reason", err)
	})
	o, values, err := st.server.with(good)
	if err != nil {
		st.server.log.Error("Settings are not applied", "reason", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] != st.mu.values[name] {
			st.server.log.Info("Setting changed", "setting", name, "value", values[name], "before", st.mu.values[name])
		}
	}
	st.mu.values = values
	st.server.reconfigure(&o)
}

// accepted returns the stored settings that this broker takes. One that it does not take alone or beside those before it
// is left out, and given to refused.
func (s *Server) accepted(stored map[string]string, refused func(name string, err error)) map[string]string {
	if _, _, err := s.with(stored); err == nil {
		return maps.Clone(stored)
	}
	good := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		good[name] = stored[name]
		if _, _, err := s.with(good); err != nil {
			delete(good, name)
			if refused != nil {
				refused(name, err)
			}
		}
	}
	return good
}

// with returns the options and values that come of stored settings, if all of them are good.
func (s *Server) with(stored map[string]string) (Options, map[string]string, error) {
	o, values, err := s.opts.Settings.With(stored)
	if err != nil {
		return o, nil, err
	}
	o.Admission.EnsureDefaults()
	o.Rules.EnsureDefaults()
	o.Topic.EnsureDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	o.Admission.validate(check)
	o.Rules.validate(check)
	o.Limits.validate(check)
	return o, values, errors.Join(append(errs, o.Topic.Validate())...)
}

// reconfigure brings the dynamic part of the options in force.
func (s *Server) reconfigure(o *Options) {
	a, now := &o.Admission, &s.dynamic
	change(&now.FrameMemory, a.FrameMemory, s.SetFrameMemoryMode)
	change(&now.MaxPublishBuffer, a.MaxPublishBuffer, s.SetFrameMemoryLimit)
	change(&now.BrokerRate, a.BrokerRate, s.SetBrokerPublishRate)
	change(&now.TopicRate, a.TopicRate, s.SetTopicPublishRate)
	change(&now.CopyEntries, o.Cache.CopyEntries, s.SetCopyEntries)
	change(&now.Topic, o.Topic, s.SetTopicOptions)
	s.rules.Store(&o.Rules)
	s.setLimits(&o.Limits)
}

// setLimits brings the dynamic ones of the limits in force.
func (s *Server) setLimits(l *Limits) {
	s.lookups.most.Store(int64(l.Lookups))
	s.topics.setLoads(l.TopicLoads)
	rate := l.SubscribeRate
	s.subscribes.Store(&rate)
}

// dynamicOptions are the dynamic options that are in force, as far as their setters do more than to store them.
type dynamicOptions struct {
	FrameMemory           FrameMemoryMode
	MaxPublishBuffer      int64
	BrokerRate, TopicRate Rate
	CopyEntries           bool
	Topic                 topic.Options
}

func dynamicOf(o *Options) dynamicOptions {
	a := &o.Admission
	return dynamicOptions{a.FrameMemory, a.MaxPublishBuffer, a.BrokerRate, a.TopicRate, o.Cache.CopyEntries, o.Topic}
}

func change[T comparable](now *T, to T, set func(T)) {
	if *now != to {
		*now = to
		set(to)
	}
}

// DynamicSettings returns the names of the settings that can be changed at run time.
func (d Directory) DynamicSettings() ([]string, error) {
	if d.server.opts.Settings == nil {
		return nil, topic.ErrNotSupported
	}
	return d.server.opts.Settings.Dynamic(), nil
}

// RuntimeSettings returns every setting's value in force on this broker; secrets are masked.
func (d Directory) RuntimeSettings() (map[string]string, error) {
	if d.server.opts.Settings == nil {
		return nil, topic.ErrNotSupported
	}
	st := &d.server.stored
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.mu.values, nil // never changed, only replaced
}

// StoredSettings returns the settings that are stored for all brokers.
func (d Directory) StoredSettings(ctx context.Context) (map[string]string, error) {
	items, err := await(ctx, "list settings", func(done func([]metadata.Item, error)) {
		d.server.opts.Store.List(metadata.SettingsPrefix, done)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMetadata, err)
	}
	values := map[string]string{}
	for i := range items {
		var info metadata.SettingInfo
		if name, ok := metadata.SettingName(items[i].Key); ok && json.Unmarshal(items[i].Value, &info) == nil {
			values[name] = info.Value
		}
	}
	return values, nil
}

// StoreSetting stores a setting for all brokers, which apply it as soon as they learn of it. ErrNotDynamic and ErrBadSetting
// say that it is refused, and why; a value must go with what else is stored.
func (d Directory) StoreSetting(ctx context.Context, name, value string) error {
	if err := d.checkDynamic(name); err != nil {
		return err
	}
	stored, err := d.StoredSettings(ctx)
	if err != nil {
		return err
	}
	stored = d.server.accepted(stored, nil)
	stored[name] = value
	if _, _, err := d.server.with(stored); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSetting, err)
	}
	b, err := json.Marshal(metadata.SettingInfo{Value: value})
	if err != nil {
		return err
	}
	return d.commit(ctx, "store setting "+name, metadata.Put(metadata.SettingKey(name), b))
}

// RemoveSetting removes a stored setting: each broker goes back to its own value. It is no error if none is stored.
func (d Directory) RemoveSetting(ctx context.Context, name string) error {
	if err := d.checkDynamic(name); err != nil {
		return err
	}
	return d.commit(ctx, "remove setting "+name, metadata.Delete(metadata.SettingKey(name)))
}

func (d Directory) checkDynamic(name string) error {
	names, err := d.DynamicSettings()
	if err == nil && !slices.Contains(names, name) {
		err = fmt.Errorf("%w: %s", ErrNotDynamic, name)
	}
	return err
}

func (d Directory) commit(ctx context.Context, what string, op metadata.Operation) error {
	out, err := await(ctx, what, func(done func(metadata.Outcome, error)) {
		d.server.opts.Store.Commit(metadata.Txn{}.Then(op), done)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errMetadata, err)
	}
	return out.Err
}
