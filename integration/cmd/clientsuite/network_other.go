//go:build !linux

package main

import "context"

func (*options) runInside(context.Context) error { return errNoNamespace }

func loopbackUp() error { return errNoNamespace }
