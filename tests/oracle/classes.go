// Writes the Unicode classes that `src/chart/template/functions/regex/unicode.rs` reads, as Go's own tables have them:
//
//	go run tests/oracle/classes.go > src/chart/template/functions/regex/classes.txt
//
// A line is the name of a class, a blank, and its runs of characters in order. A run is the distance from the last
// character before it (from 0 for the first run), and twice the number of its characters after the first; one more than
// that if they do not follow each other directly, and then their distance. A number is written in groups of five bits,
// the highest first, each as the character '0' plus the group, plus 32 if more groups follow.
package main

import (
	"fmt"
	"unicode"
)

func number(n uint32) string {
	text := string(rune('0' + n&31))
	for n >>= 5; n > 0; n >>= 5 {
		text = string(rune('0'+32+n&31)) + text
	}
	return text
}

func main() {
	for _, name := range []string{"L", "Lu", "Ll", "N", "Nd", "P", "S", "Z", "Latin", "Greek", "Cyrillic", "Han"} {
		table := unicode.Categories[name]
		if table == nil {
			table = unicode.Scripts[name]
		}
		runs := table.R32
		for i := range table.R16 {
			r := table.R16[len(table.R16)-1-i]
			runs = append([]unicode.Range32{{Lo: uint32(r.Lo), Hi: uint32(r.Hi), Stride: uint32(r.Stride)}}, runs...)
		}
		text, last := "", uint32(0)
		for _, run := range runs {
			count := (run.Hi - run.Lo) / run.Stride * 2
			text += number(run.Lo - last)
			if run.Stride == 1 || count == 0 {
				text += number(count)
			} else {
				text += number(count+1) + number(run.Stride)
			}
			last = run.Hi
		}
		fmt.Println(name, text)
	}
}
