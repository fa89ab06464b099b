// heap PORT: answers over HTTP from a heap with many pointers, which the collector has to mark again and again.
package main

import (
	"net/http"
	"os"
)

type node struct {
	next *node
	data [48]byte
}

const (
	kept      = 2_000_000
	allocated = 100
)

var heads [64]*node

func main() {
	for i := 0; i < kept; i++ {
		at := i % len(heads)
		heads[at] = &node{next: heads[at]}
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		garbage := make([][]byte, allocated)
		for i := range garbage {
			garbage[i] = make([]byte, 4096)
		}
		w.Write(garbage[0][:5])
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
