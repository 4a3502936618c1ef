module geminga/tools

go 1.26.0

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/google/pprof v0.0.0-20261105003125-4bf881d7fb0b
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/sync v0.8.0 // indirect
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2 // indirect
)

tool (
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	google.golang.org/protobuf/cmd/protoc-gen-go
)
