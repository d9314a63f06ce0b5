package main

import "testing"

func TestParseQuantity(t *testing.T) {
	for _, each := range []struct {
		text  string
		scale int64
		want  int64
	}{
		{"500m", 1000, 500}, {"2", 1000, 2000}, {"0.1", 1000, 100}, {"16.1", 1000, 16100},
		{"100u", 1000, 1}, {".5", 1000, 500}, {"1.", 1000, 1000},
		{"1Gi", 1, 1 << 30}, {"128974848", 1, 128974848}, {"129e6", 1, 129000000},
		{"129M", 1, 129000000}, {"123Mi", 1, 123 << 20}, {"1.5Gi", 1, 3 << 29},
		{"1E", 1, 1e18}, {"1E3", 1, 1000}, {"1e-3", 1, 1}, {"128974848000m", 1, 128974848},
		{"-1.5", 1, -1}, {"+7", 1, 7}, {"0", 1, 0}, {"9Ei", 1, 1<<63 - 1},
	} {
		got, err := parseQuantity(each.text, each.scale)
		if err != nil || got != each.want {
			t.Errorf("%s times %d is %d (%v), expected %d", each.text, each.scale, got, err, each.want)
		}
	}
	for _, text := range []string{"", "m", "1.2.3", "1 Gi", "1gi", "1e", "1e9999", "0x10", "1/2"} {
		if got, err := parseQuantity(text, 1); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}
