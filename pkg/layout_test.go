package pkg

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The map of the packages: what each may import of ours, whether it may start goroutines, and whether it may hold
// locks. The test fails when the code leaves it. Growing it is fine when the direction stays: an upper package imports a
// lower one, never the reverse.
type rules struct {
	imports    []string // below geminga/
	goroutines bool
	locks      bool
}

var layout = map[string]rules{
	"invariant":     {nil, false, false},
	"executor":      {[]string{"pkg/invariant"}, true, true},
	"eventloop":     {[]string{"pkg/invariant"}, true, true},
	"ledger":        {[]string{"pkg/invariant"}, false, false},
	"metadata":      {[]string{"pkg/invariant", "pkg/ledger"}, false, false},
	"vfs":           {nil, false, true},
	"journal":       {[]string{"pkg/invariant", "pkg/vfs"}, true, true},
	"protocol":      {[]string{"pkg/invariant", "rpc/pulsarpb"}, false, false},
	"managedledger": {[]string{"pkg/invariant", "pkg/executor", "pkg/ledger", "pkg/metadata"}, false, true},
	"topic": {[]string{
		"pkg/invariant", "pkg/protocol", "pkg/executor", "pkg/managedledger", "pkg/ledger", "pkg/metadata", "rpc/pulsarpb",
	}, false, false},
	"broker": {[]string{
		"pkg/invariant", "pkg/protocol", "pkg/eventloop", "pkg/executor", "pkg/topic", "pkg/managedledger", "pkg/ledger",
		"pkg/metadata", "pkg/auth", "rpc/pulsarpb",
	}, true, true},
	"bookieclient": {[]string{"pkg/invariant", "rpc/bookiepb", "pkg/ledger", "pkg/metadata"}, true, true},
	"bookie":       {[]string{"pkg/invariant", "rpc/bookiepb", "pkg/ledger", "pkg/metadata", "pkg/journal", "pkg/vfs"}, true, true},
	"cluster":      {[]string{"pkg/invariant"}, true, true},
	"admin":        {[]string{"pkg/invariant", "pkg/broker", "pkg/topic", "pkg/protocol"}, true, false},
	"telemetry":    {nil, false, false},
	"bookietest":   {[]string{"pkg/invariant", "pkg/ledger", "pkg/metadata"}, true, true},
}

const (
	maxFileLines = 600
	maxFuncLines = 80
)

// source is one parsed non-generated Go file.
type source struct {
	path string
	test bool
	file *ast.File
	fset *token.FileSet
}

func parsePackage(t *testing.T, dir string) []source {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []source
	for _, name := range names {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, source{name, strings.HasSuffix(name, "_test.go"), f, fset})
	}
	return out
}

func eachPackage(t *testing.T, check func(t *testing.T, name string, files []source)) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "testdata" {
			t.Run(e.Name(), func(t *testing.T) { check(t, e.Name(), parsePackage(t, e.Name())) })
		}
	}
}

func TestPackagesAreOnTheMap(t *testing.T) {
	eachPackage(t, func(t *testing.T, name string, _ []source) {
		if _, ok := layout[name]; !ok {
			t.Errorf("pkg/%s is not in the layout table", name)
		}
	})
	for name := range layout {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("the layout table has %s, the tree has not", name)
		}
	}
}

func TestImportsGoDownThePath(t *testing.T) {
	eachPackage(t, func(t *testing.T, name string, files []source) {
		for _, s := range files {
			if s.test {
				continue
			}
			for _, imp := range s.file.Imports {
				path, _ := strconv.Unquote(imp.Path.Value)
				ours, ok := strings.CutPrefix(path, "geminga/")
				if ok && !slices.Contains(layout[name].imports, ours) {
					t.Errorf("%s imports %s, which pkg/%s may not", s.path, path, name)
				}
				if strings.HasPrefix(path, "go.opentelemetry.io/otel/sdk") && name != "telemetry" && name != "bookietest" {
					t.Errorf("%s imports the OpenTelemetry SDK; packages take the API through Options", s.path)
				}
			}
		}
	})
}

func TestEveryPackageHasADoc(t *testing.T) {
	eachPackage(t, func(t *testing.T, name string, files []source) {
		for _, s := range files {
			if filepath.Base(s.path) == "doc.go" {
				if s.file.Doc == nil || len(s.file.Doc.Text()) < 200 {
					t.Errorf("%s: the package comment says too little", s.path)
				}
				return
			}
		}
		t.Errorf("pkg/%s has no doc.go", name)
	})
}

func TestSizes(t *testing.T) {
	eachPackage(t, func(t *testing.T, _ string, files []source) {
		for _, s := range files {
			if s.test {
				continue
			}
			if n := s.fset.File(s.file.Pos()).LineCount(); n > maxFileLines {
				t.Errorf("%s has %d lines, at most %d are allowed", s.path, n, maxFileLines)
			}
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					checkFunc(t, s, f)
				}
			}
		}
	})
}

func checkFunc(t *testing.T, s source, f *ast.FuncDecl) {
	t.Helper()
	if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFuncLines {
		t.Errorf("%s: %s has %d lines, at most %d are allowed", s.path, f.Name.Name, n, maxFuncLines)
	}
	if f.Name.Name == "init" && f.Recv == nil {
		t.Errorf("%s: init is not allowed", s.path)
	}
}

// A goroutine is started by a go statement or by the Go method of a wait group or error group.
func TestGoroutinesAndLocksStayWhereTheMapSays(t *testing.T) {
	eachPackage(t, func(t *testing.T, name string, files []source) {
		for _, s := range files {
			if s.test {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				if what := starts(n); what != "" && !layout[name].goroutines {
					t.Errorf("%s: %s", s.fset.Position(n.Pos()), what)
				}
				if sel, ok := n.(*ast.SelectorExpr); ok && isLock(sel) && !layout[name].locks {
					t.Errorf("%s: a lock", s.fset.Position(n.Pos()))
				}
				return true
			})
		}
	})
}

func starts(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a go statement"
	case *ast.CallExpr:
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
			return "a call of Go"
		}
	}
	return ""
}

func isLock(sel *ast.SelectorExpr) bool {
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "sync" && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex")
}

// A test that runs in a synctest bubble may sleep: its time is virtual. A lock may be embedded in the anonymous struct of
// a field that groups what it guards (mu struct{ sync.Mutex; … }), not in a type, whose method set it would join.
func TestNoSleepsAndNoEmbeddedLocks(t *testing.T) {
	eachPackage(t, func(t *testing.T, _ string, files []source) {
		for _, s := range files {
			virtual := s.test && importsPackage(s.file, "testing/synctest")
			ast.Inspect(s.file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && !virtual && fmt.Sprint(sel.X, ".", sel.Sel) == "time.Sleep" {
					t.Errorf("%s: time.Sleep", s.fset.Position(n.Pos()))
				}
				if spec, ok := n.(*ast.TypeSpec); ok {
					checkNoEmbeddedLock(t, s, spec)
				}
				return true
			})
		}
	})
}

func checkNoEmbeddedLock(t *testing.T, s source, spec *ast.TypeSpec) {
	t.Helper()
	st, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		if sel, ok := f.Type.(*ast.SelectorExpr); ok && len(f.Names) == 0 && isLock(sel) {
			t.Errorf("%s: %s embeds a lock", s.fset.Position(f.Pos()), spec.Name)
		}
	}
}

func importsPackage(f *ast.File, path string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
}
