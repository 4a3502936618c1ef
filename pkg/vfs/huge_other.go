//go:build !linux

package vfs

func adviseHuge([]byte) {}
