package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	group     = "extensions.gardener.cloud"
	finalizer = "extensions.gardener.cloud/lab"
	operation = "gardener.cloud/operation"
	// The interval between two lists of the objects.
	look = 500 * time.Millisecond
)

// The kinds whose objects it reconciles, by their names in paths.
var kinds = []string{"controlplanes", "dnsrecords", "extensions"}

// silent: an object requests that the heartbeat stops.
var silent atomic.Bool

// object is one of an extension, with the fields that are needed.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		Generation        int64             `json:"generation"`
		ResourceVersion   string            `json:"resourceVersion"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
		Finalizers        []string          `json:"finalizers"`
	} `json:"metadata"`
	Spec struct {
		Type           string `json:"type"`
		ProviderConfig wish   `json:"providerConfig"`
	} `json:"spec"`
	Status struct {
		LastOperation *struct {
			Type string `json:"type"`
		} `json:"lastOperation"`
		Conditions []map[string]any `json:"conditions"`
	} `json:"status"`
}

// wish is the providerConfig of an object: the requested failure.
type wish struct {
	// Each operation fails with this error.
	Error *struct {
		Description string   `json:"description"`
		Codes       []string `json:"codes"`
	} `json:"error"`
	// The heartbeat stops while an object requests it.
	Silent bool `json:"silent"`
	// The reported health of the Shoot's control plane: True by default.
	Health string `json:"health"`
}

// reconcile handles all objects of the types.
func reconcile(client *http.Client, types []string) {
	base := fmt.Sprintf("https://%s/apis/%s/v1alpha1",
		net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")), group)
	for ; ; time.Sleep(look) {
		isSilent, isComplete := false, true
		for _, kind := range kinds {
			var all struct {
				Items []object `json:"items"`
			}
			if err := get(client, base+"/"+kind, &all); err != nil {
				log.Print(err)
				isComplete = false
				continue
			}
			for _, one := range all.Items {
				if !contains(types, one.Spec.Type) {
					continue
				}
				isSilent = isSilent || one.Spec.ProviderConfig.Silent
				url := fmt.Sprintf("%s/namespaces/%s/%s/%s", base, one.Metadata.Namespace, kind, one.Metadata.Name)
				if err := handle(client, url, one); err != nil {
					log.Print(err)
				}
			}
		}
		if isComplete {
			silent.Store(isSilent)
		}
	}
}

// handle executes the requested operation, like Gardener's library for extensions.
func handle(client *http.Client, url string, one object) error {
	meta := one.Metadata
	asked := meta.Annotations[operation]
	switch {
	case meta.DeletionTimestamp != "":
		if !contains(meta.Finalizers, finalizer) {
			return nil
		}
		if err := report(client, url, one, "Delete"); err != nil || one.Spec.ProviderConfig.Error != nil {
			return err
		}
		return patch(client, url, map[string]any{"metadata": map[string]any{
			"resourceVersion": meta.ResourceVersion, "finalizers": without(meta.Finalizers)}})
	case asked == "migrate":
		if err := report(client, url, one, "Migrate"); err != nil || one.Spec.ProviderConfig.Error != nil {
			return err
		}
		return done(client, url, without(meta.Finalizers))
	case asked == "reconcile" || asked == "restore":
		if !contains(meta.Finalizers, finalizer) {
			// A change without the finalizer must not start.
			return patch(client, url, map[string]any{"metadata": map[string]any{
				"resourceVersion": meta.ResourceVersion, "finalizers": append(meta.Finalizers, finalizer)}})
		}
		kind := "Reconcile"
		if asked == "restore" {
			kind = "Restore"
		} else if one.Status.LastOperation == nil {
			kind = "Create"
		}
		// The annotation is removed first: a request that arrives meanwhile must not be lost.
		if err := done(client, url, meta.Finalizers); err != nil {
			return err
		}
		return report(client, url, one, kind)
	case one.Kind != "DNSRecord" && !isReported(one):
		return health(client, url, one)
	}
	return nil
}

// report writes how an operation ended.
func report(client *http.Client, url string, one object, kind string) error {
	last := map[string]any{"type": kind, "state": "Succeeded", "progress": 100, "description": "by the lab",
		"lastUpdateTime": now()}
	status := map[string]any{"lastOperation": last, "lastError": nil, "observedGeneration": one.Metadata.Generation,
		"state": map[string]any{"generation": one.Metadata.Generation}}
	if failure := one.Spec.ProviderConfig.Error; failure != nil {
		last["state"], last["progress"] = "Error", 50
		status["lastError"] = map[string]any{"description": failure.Description, "codes": failure.Codes, "lastUpdateTime": now()}
	}
	return patch(client, url+"/status", map[string]any{"status": status})
}

func wanted(one object) string {
	if one.Spec.ProviderConfig.Health == "" {
		return "True"
	}
	return one.Spec.ProviderConfig.Health
}

// isReported returns whether its condition has the wanted status.
func isReported(one object) bool {
	for _, condition := range one.Status.Conditions {
		if condition["type"] == "ControlPlaneHealthy" {
			return condition["status"] == wanted(one)
		}
	}
	return false
}

// health reports on the Shoot.
func health(client *http.Client, url string, one object) error {
	condition := map[string]any{"type": "ControlPlaneHealthy", "status": wanted(one), "reason": "LabSays",
		"message": "the lab says " + wanted(one), "lastTransitionTime": now(), "lastUpdateTime": now()}
	return patch(client, url+"/status", map[string]any{"status": map[string]any{"conditions": []any{condition}}})
}

func done(client *http.Client, url string, finalizers []string) error {
	return patch(client, url, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{operation: nil}, "finalizers": finalizers}})
}

func now() string {
	return time.Now().UTC().Format(time.RFC3339)
}

func contains(all []string, one string) bool {
	for _, other := range all {
		if other == one {
			return true
		}
	}
	return false
}

func without(all []string) []string {
	rest := []string{}
	for _, other := range all {
		if other != finalizer {
			rest = append(rest, other)
		}
	}
	return rest
}

func patch(client *http.Client, url string, body any) error {
	status, err := send(client, http.MethodPatch, url, "application/merge-patch+json", body)
	// It was deleted, or another writer was first: the next list shows it.
	if status == http.StatusNotFound || status == http.StatusConflict {
		return nil
	}
	return err
}

func get(client *http.Client, url string, into any) error {
	response, err := request(client, http.MethodGet, url, "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
