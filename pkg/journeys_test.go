package pkg

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestJourneys checks that every file.go:func in doc.go is there. A step without a package is in that of the step before.
func TestJourneys(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`(?:([a-z]+)/)?([a-z_]+\.go):([A-Za-z]+(?:\.[A-Za-z]+)?)`).FindAllStringSubmatch(string(text), -1)
	if len(steps) < 40 {
		t.Fatalf("only %d steps", len(steps))
	}
	known := map[string]map[string]bool{}
	pkg := ""
	for _, s := range steps {
		if s[1] != "" {
			pkg = s[1]
		}
		if pkg == "package" { // the sentence that explains
			continue
		}
		path := filepath.Join(pkg, s[2])
		if known[path] == nil {
			known[path] = functions(t, path)
		}
		if !known[path][s[3]] {
			t.Errorf("%s: no func %s", path, s[3])
		}
	}
}

// functions returns the functions of a file, methods as Type.Method.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return map[string]bool{}
	}
	out := map[string]bool{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil {
			recv := fn.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			if id, ok := recv.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		out[name] = true
	}
	return out
}
