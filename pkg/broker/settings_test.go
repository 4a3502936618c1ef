package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"geminga/pkg/bookietest"
	"geminga/pkg/metadata"
)

// fewSettings is a Settings with three numbers of which two can be changed; base is what the broker itself has.
type fewSettings struct{ base map[string]string }

func (fewSettings) Dynamic() []string { return []string{"high", "rate"} }

func (f fewSettings) With(stored map[string]string) (o Options, values map[string]string, err error) {
	values = map[string]string{"fixed": "1", "rate": "0", "high": "1000"}
	maps.Copy(values, f.base)
	for name, value := range stored {
		if !slices.Contains(f.Dynamic(), name) {
			return o, nil, fmt.Errorf("%s is not dynamic", name)
		}
		values[name] = value
	}
	numbers := map[string]int64{}
	for name, value := range values {
		if numbers[name], err = strconv.ParseInt(value, 10, 64); err != nil {
			return o, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	o.Admission.TopicRate.Messages = numbers["rate"]
	o.Admission.HighWater, o.Admission.LowWater = int(numbers["high"]), 500
	return o, values, nil
}

func withSettings(base map[string]string) func(*Options) {
	return func(o *Options) {
		o.Settings = fewSettings{base}
		own, _, _ := o.Settings.With(nil)
		o.Admission = own.Admission
	}
}

func (s *Server) rateOfTopics() int64 { return s.topicRate.Load().Messages }

// Both brokers apply what is stored, and what is stored before a broker starts; removed, each goes back to its own.
func TestStoredSettings(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	one := startOn(t, cluster, withSettings(map[string]string{"rate": "7"}))
	ctx, d := context.Background(), one.Directory()
	if err := d.StoreSetting(ctx, "rate", "500"); err != nil {
		t.Fatal(err)
	}
	two := startOn(t, cluster, withSettings(nil), func(o *Options) { o.ID = "broker-2" })
	for _, s := range []*Server{one, two} {
		eventually(t, "the rate to be 500", func() bool { return s.rateOfTopics() == 500 })
		values, err := s.Directory().RuntimeSettings()
		if err != nil || values["rate"] != "500" || values["fixed"] != "1" {
			t.Errorf("%v, %v", values, err)
		}
		stored, err := s.Directory().StoredSettings(ctx)
		if err != nil || !maps.Equal(stored, map[string]string{"rate": "500"}) {
			t.Errorf("%v, %v", stored, err)
		}
	}
	if err := two.Directory().RemoveSetting(ctx, "rate"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the brokers to have their own rates", func() bool { return one.rateOfTopics() == 7 && two.rateOfTopics() == 0 })
	if err := two.Directory().RemoveSetting(ctx, "rate"); err != nil {
		t.Errorf("nothing is stored: %v", err)
	}
}

func TestStoredSettingsAreRefused(t *testing.T) {
	s, _ := start(t, withSettings(nil))
	ctx, d := context.Background(), s.Directory()
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"fixed", "2", ErrNotDynamic},
		{"typo", "2", ErrNotDynamic},
		{"rate", "many", ErrBadSetting},
		{"rate", "-1", ErrBadSetting},  // says Admission
		{"high", "400", ErrBadSetting}, // does not go with the low water mark
	} {
		if err := d.StoreSetting(ctx, c.name, c.value); !errors.Is(err, c.want) {
			t.Errorf("%s=%s: %v, want %v", c.name, c.value, err, c.want)
		}
	}
	if err := d.RemoveSetting(ctx, "fixed"); !errors.Is(err, ErrNotDynamic) {
		t.Errorf("remove: %v", err)
	}
	if stored, err := d.StoredSettings(ctx); err != nil || len(stored) != 0 {
		t.Errorf("%v, %v", stored, err)
	}
	plain, _ := start(t)
	if _, err := plain.Directory().DynamicSettings(); err == nil {
		t.Error("a broker without settings has some")
	}
}

// What another version has stored and this one does not take stands in nobody's way.
func TestForeignStoredSettings(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	client := cluster.Client()
	put := func(name, value string) {
		t.Helper()
		done := make(chan error, 1)
		txn := metadata.Txn{}.Then(metadata.Put(metadata.SettingKey(name), []byte(value)))
		client.Commit(txn, func(out metadata.Outcome, err error) { done <- errors.Join(err, out.Err) })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	put("of/the future", `{"value":"1"}`)
	put("high", `{"value":"100"}`)
	put("a", `broken`)
	put("rate", `{"value":"500"}`)
	s := startOn(t, cluster, withSettings(nil))
	eventually(t, "the rate to be 500", func() bool { return s.rateOfTopics() == 500 })
	d, ctx := s.Directory(), context.Background()
	if err := d.StoreSetting(ctx, "rate", "501"); err != nil {
		t.Errorf("a good value is refused because of others: %v", err)
	}
	eventually(t, "the rate to be 501", func() bool { return s.rateOfTopics() == 501 })
	if err := d.StoreSetting(ctx, "high", "2000"); err != nil {
		t.Errorf("the bad value is not replaced: %v", err)
	}
}

// The values in force are a snapshot for whoever asks.
func TestRuntimeSettingsWhileTheyChange(t *testing.T) {
	s, _ := start(t, withSettings(nil))
	ctx, d := context.Background(), s.Directory()
	for i := range 20 {
		if err := d.StoreSetting(ctx, "rate", strconv.Itoa(i+1)); err != nil {
			t.Fatal(err)
		}
		values, err := d.RuntimeSettings()
		if err != nil || len(values) != 3 {
			t.Fatalf("%v, %v", values, err)
		}
	}
	eventually(t, "the last to be in force", func() bool { return s.rateOfTopics() == 20 })
}
