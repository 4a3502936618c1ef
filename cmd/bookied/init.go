package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"geminga/pkg/bookie"
)

// initCommand makes a data directory, the one time in its life. It refuses a directory that holds anything.
func initCommand(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("bookied init", flag.ContinueOnError)
	data := fs.String("data", "", "data directory, empty or absent")
	id := fs.String("id", "", "id of this bookie, unique in the cluster and never used again after a disk was lost")
	clusterID := fs.String("cluster-id", "", "id of the cluster, the same for every bookie of it")
	members := fs.String("members", "", "bookies that hold the metadata at first, the same list for every bookie: id=host:port,id=host:port,…")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *data == "" || *id == "" || *clusterID == "" || *members == "" {
		return fmt.Errorf("init needs --data, --id, --cluster-id and --members")
	}
	list, err := parseMembers(*members)
	if err != nil {
		return err
	}
	if _, err := bookie.Init(bookie.InitOptions{DataDir: *data, BookieID: *id, ClusterID: *clusterID, Metadata: list}); err != nil {
		return err
	}
	fmt.Printf("%s is ready for bookie %s of cluster %s\n", *data, *id, *clusterID)
	return nil
}

func parseMembers(s string) ([]bookie.Member, error) {
	var out []bookie.Member
	for _, m := range strings.Split(s, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(m), "=")
		if !ok || id == "" || addr == "" {
			return nil, fmt.Errorf("--members: %q is not id=host:port", m)
		}
		out = append(out, bookie.Member{ID: id, Address: addr})
	}
	return out, nil
}
