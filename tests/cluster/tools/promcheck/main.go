// Command promcheck judges Prometheus' rules with Prometheus' own parser and engine, which promtool does with a hundred clouds
// linked in. Its input is one request as JSON; its output is what is wrong, what the expressions name, and which alerts fire.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Step is the time between two samples, and between two evaluations of a rule.
const Step = time.Minute

type request struct {
	// Rules is the text of a file of rules, Expressions are those of a dashboard.
	Rules       string
	Expressions []string
	// Cases are an alert, series, and how many steps later it is looked at.
	Cases []struct {
		Alert  string
		Series map[string]string
		Steps  int
	}
}

type use struct {
	Of     string   `json:"of"`
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

type firing struct {
	Alert  string            `json:"alert"`
	Labels map[string]string `json:"labels"`
	Texts  map[string]string `json:"texts"`
}

type answer struct {
	Errors []string   `json:"errors"`
	Uses   []use      `json:"uses"`
	Fires  [][]firing `json:"fires"`
}

type sample struct {
	t int64
	f float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory is a storage that holds a few series.
type memory []*storage.SeriesEntry

func (m memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }
func (m memory) Close() error                                { return nil }

func (m memory) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{}
	for _, series := range m {
		fits := true
		for _, matcher := range matchers {
			fits = fits && matcher.Matches(series.Labels().Get(matcher.Name))
		}
		if fits {
			found.left = append(found.left, series)
		}
	}
	return found
}

type set struct {
	left []*storage.SeriesEntry
	at   *storage.SeriesEntry
}

func (s *set) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}
func (s *set) At() storage.Series                { return s.at }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	var asked request
	if err := json.Unmarshal(input, &asked); err != nil {
		log.Fatal(err)
	}
	told := answer{Errors: []string{}, Uses: []use{}, Fires: [][]firing{}}
	language := parser.NewParser(parser.Options{})
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	groups, errs := rulefmt.Parse([]byte(asked.Rules), false, model.LegacyValidation, language, silent)
	for _, err := range errs {
		told.Errors = append(told.Errors, err.Error())
	}
	if groups == nil {
		groups = &rulefmt.RuleGroups{}
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			told.Uses = append(told.Uses, uses(language, rule.Alert, rule.Expr, &told.Errors)...)
		}
	}
	for _, text := range asked.Expressions {
		told.Uses = append(told.Uses, uses(language, text, text, &told.Errors)...)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language})
	for _, one := range asked.Cases {
		store, err := fill(language, one.Series)
		if err != nil {
			log.Fatal(err)
		}
		fires := []firing{}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				if rule.Alert != one.Alert {
					continue
				}
				fires = append(fires, evaluate(engine, store, rule, one.Steps, &told.Errors)...)
			}
		}
		told.Fires = append(told.Fires, fires)
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		log.Fatal(err)
	}
}

// uses lists which metrics an expression names, with the labels that it needs of them.
func uses(language parser.Parser, of, text string, errors *[]string) []use {
	parsed, err := language.ParseExpr(text)
	if err != nil {
		*errors = append(*errors, fmt.Sprintf("%s: %v", of, err))
		return nil
	}
	var found []use
	var visit func(node parser.Node, grouped []string)
	visit = func(node parser.Node, grouped []string) {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			if !node.Without {
				grouped = node.Grouping
			}
		case *parser.Call:
			// Which labels come out of it is not known.
			if node.Func.Name == "label_replace" {
				grouped = nil
			}
		case *parser.VectorSelector:
			names := map[string]bool{}
			for _, matcher := range node.LabelMatchers {
				names[matcher.Name] = true
			}
			for _, name := range grouped {
				names[name] = true
			}
			delete(names, labels.MetricName)
			one := use{Of: of, Metric: node.Name, Labels: []string{}}
			for name := range names {
				one.Labels = append(one.Labels, name)
			}
			sort.Strings(one.Labels)
			found = append(found, one)
		}
		for child := range parser.ChildrenIter(node) {
			visit(child, grouped)
		}
	}
	visit(parsed, nil)
	return found
}

func fill(language parser.Parser, described map[string]string) (memory, error) {
	var store memory
	for name, values := range described {
		lset, numbers, err := language.ParseSeriesDesc(name + " " + values)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, values, err)
		}
		var samples []chunks.Sample
		for i, number := range numbers {
			if !number.Omitted {
				samples = append(samples, sample{int64(i) * Step.Milliseconds(), number.Value})
			}
		}
		store = append(store, storage.NewListSeries(lset, samples))
	}
	return store, nil
}

// evaluate evaluates a rule once per step, and tells what fires at the last one.
func evaluate(engine *promql.Engine, store memory, rule rulefmt.Rule, steps int, errors *[]string) []firing {
	since := map[string]int{}
	var last promql.Vector
	for step := 0; step <= steps; step++ {
		at := time.Unix(0, 0).Add(time.Duration(step) * Step)
		query, err := engine.NewInstantQuery(context.Background(), store, nil, rule.Expr, at)
		if err != nil {
			*errors = append(*errors, fmt.Sprintf("%s: %v", rule.Alert, err))
			return nil
		}
		result := query.Exec(context.Background())
		last, err = result.Vector()
		if err != nil {
			*errors = append(*errors, fmt.Sprintf("%s: %v", rule.Alert, err))
			return nil
		}
		now := map[string]int{}
		for _, found := range last {
			key := found.Metric.String()
			now[key] = step
			if began, known := since[key]; known {
				now[key] = began
			}
		}
		since = now
	}
	fires := []firing{}
	for _, found := range last {
		if time.Duration(steps-since[found.Metric.String()])*Step < time.Duration(rule.For) {
			continue
		}
		texts := map[string]string{}
		for name, text := range rule.Annotations {
			expanded, err := expand(text, found)
			if err != nil {
				*errors = append(*errors, fmt.Sprintf("%s: %s: %v", rule.Alert, name, err))
			}
			texts[name] = expanded
		}
		fires = append(fires, firing{rule.Alert, found.Metric.Map(), texts})
	}
	return fires
}

func expand(text string, found promql.Sample) (string, error) {
	heads := "{{$labels := .Labels}}{{$value := .Value}}"
	data := template.AlertTemplateData(found.Metric.Map(), nil, "", found)
	// A label that the result has not is shown as nothing; here it is an error.
	options := []string{"missingkey=error"}
	expander := template.NewTemplateExpander(context.Background(), heads+text, "annotation", data, model.Time(found.T), nil, &url.URL{}, options)
	expanded, err := expander.Expand()
	return strings.TrimSpace(expanded), err
}
