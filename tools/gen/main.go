// Command gen regenerates the Go code under rpc/ from the .proto files beside it.
//
// It compiles the files with protocompile and hands the result to the standard plugins, protoc-gen-go and
// protoc-gen-go-grpc, at the versions pinned in tools/go.mod, so no protoc binary is needed. With -check nothing is
// written: the command fails when the committed code differs from what the .proto files give.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins lists the generators in the order they run.
var plugins = []string{
	"google.golang.org/protobuf/cmd/protoc-gen-go",
	"google.golang.org/grpc/cmd/protoc-gen-go-grpc",
}

func main() {
	root := flag.String("root", "rpc", "directory that holds the .proto files; code goes to its sub-packages")
	check := flag.Bool("check", false, "write nothing, fail when the committed code is stale")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	protos, err := filepath.Glob(filepath.Join(root, "*.proto"))
	if err != nil {
		return err
	}
	var stale []string
	for _, p := range protos {
		files, err := generate(root, filepath.Base(p))
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for name, content := range files {
			path := filepath.Join(root, name)
			old, _ := os.ReadFile(path)
			if bytes.Equal(old, content) {
				continue
			}
			if check {
				stale = append(stale, path)
				continue
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
			fmt.Println("wrote", path)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("stale: %s (run make gen)", strings.Join(stale, ", "))
	}
	return nil
}

// generate compiles one file and returns the generated ones by their path below root.
func generate(root, file string) (map[string][]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return nil, err
	}
	desc := protoutil.ProtoFromFileDescriptor(compiled[0])
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("module=geminga/rpc"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{desc},
	}
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, plugin := range plugins {
		if err := runPlugin(plugin, in, out); err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return out, nil
}

func runPlugin(plugin string, in []byte, out map[string][]byte) error {
	cmd := exec.Command("go", "run", plugin)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	cmd.Dir = toolsDir()
	raw, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(raw, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return errors.New(resp.GetError())
	}
	for _, f := range resp.File {
		out[f.GetName()] = []byte(f.GetContent())
	}
	return nil
}

// toolsDir is where tools/go.mod lies, seen from the root of the repository.
func toolsDir() string {
	if _, err := os.Stat("tools/go.mod"); err == nil {
		return "tools"
	}
	return "."
}
