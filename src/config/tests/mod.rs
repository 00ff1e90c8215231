//! Tests of the configuration: reading, defaults, checks, documents.

use std::time::Duration;

use serde_json::{Value, json};

use super::settings::ResourceManager;
use super::*;

fn minimal() -> Value {
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "dns"});
    json!({
        "apiVersion": "gardenlet.config.gardener.cloud/v1alpha1",
        "kind": "GardenletConfiguration",
        "seedConfig": {
            "metadata": {"name": "edge-1"},
            "spec": {
                "provider": {"type": "local", "region": "north", "zones": ["a", "b"]},
                "networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16", "services": "10.52.0.0/16"},
                "dns": {
                    "internal": {"type": "local", "domain": "int.example.org", "credentialsRef": credentials},
                    "provider": {"type": "local", "credentialsRef": credentials}
                },
                "ingress": {"domain": "ingress.edge-1.example.org", "controller": {"kind": "nginx"}}
            }
        }
    })
}

/// The value at a path such as `a.b[0].c`, created if missing.
fn place<'a>(document: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(document, |value, step| {
        let (key, index) = step.split_once('[').map_or((step, None), |(key, index)| (key, Some(index)));
        let value = &mut value[key];
        let Some(index) = index.map(|index| index.trim_end_matches(']').parse::<usize>().unwrap()) else {
            return value;
        };
        if value.is_null() {
            *value = json!([]);
        }
        let list = value.as_array_mut().unwrap();
        while list.len() <= index {
            list.push(json!({}));
        }
        &mut list[index]
    })
}

fn with(changes: &[(&str, Value)]) -> String {
    let mut document = minimal();
    for (path, value) in changes {
        *place(&mut document, path) = value.clone();
    }
    document.to_string()
}

fn settings(changes: &[(&str, Value)]) -> Settings {
    let loaded =
        load(&with(changes), "c.yaml").unwrap_or_else(|problems| panic!("{changes:?}: {problems:#?}"));
    assert_eq!(loaded.warnings, [], "{changes:?}");
    loaded.settings
}

/// The same, regardless of fields without effect.
fn usable(changes: &[(&str, Value)]) -> Settings {
    load(&with(changes), "c.yaml").unwrap_or_else(|problems| panic!("{changes:?}: {problems:#?}")).settings
}

/// The errors of the minimal configuration with these changes, as `path: message`.
fn errors(changes: &[(&str, Value)]) -> Vec<String> {
    load(&with(changes), "c.yaml")
        .map_or_else(|problems| texts(&problems), |loaded| panic!("{changes:?}: {:?}", loaded.warnings))
}

fn warnings(changes: &[(&str, Value)]) -> Vec<String> {
    texts(
        &load(&with(changes), "c.yaml")
            .unwrap_or_else(|problems| panic!("{changes:?}: {problems:#?}"))
            .warnings,
    )
}

fn texts(problems: &[ConfigProblem]) -> Vec<String> {
    problems.iter().map(ConfigProblem::to_string).collect()
}

fn read<'a>(document: &'a Value, path: &str) -> &'a Value {
    let pointer = format!("/{}", path.replace('/', "~1").replace(['.', '['], "/").replace(']', ""));
    document.pointer(&pointer).unwrap_or(&Value::Null)
}

#[test]
fn every_default() {
    let gateway = json!({"app": "istio-ingressgateway", "istio": "ingressgateway"});
    let handler = json!({"app": "istio-ingressgateway", "gardener.cloud/role": "exposureclass-handler"});
    let table = [
        ("apiVersion", json!("gardenlet.config.gardener.cloud/v1alpha1")),
        ("kind", json!("GardenletConfiguration")),
        ("gardenClientConnection.qps", json!(50)),
        ("gardenClientConnection.burst", json!(100)),
        ("seedClientConnection.qps", json!(50)),
        ("seedClientConnection.burst", json!(100)),
        ("shootClientConnection.qps", json!(50)),
        ("shootClientConnection.burst", json!(100)),
        ("gardenClientConnection.bootstrapKubeconfig", Value::Null),
        ("gardenClientConnection.kubeconfigSecret", Value::Null),
        ("gardenClientConnection.kubeconfigValidity.validity", Value::Null),
        ("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin", json!(70)),
        ("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMax", json!(90)),
        ("controllers.cacheSyncTimeout", json!("2m0s")),
        ("controllers.backupBucket.concurrentSyncs", json!(20)),
        ("controllers.backupEntry.concurrentSyncs", json!(20)),
        ("controllers.backupEntry.deletionGracePeriodHours", json!(0)),
        ("controllers.backupEntry.deletionGracePeriodShootPurposes", Value::Null),
        ("controllers.bastion.concurrentSyncs", json!(20)),
        ("controllers.controllerInstallation.concurrentSyncs", json!(20)),
        ("controllers.controllerInstallationCare.concurrentSyncs", json!(20)),
        ("controllers.controllerInstallationCare.syncPeriod", json!("30s")),
        ("controllers.controllerInstallationRequired.concurrentSyncs", json!(1)),
        ("controllers.gardenlet.syncPeriod", json!("1h0m0s")),
        ("controllers.seed.syncPeriod", json!("1m0s")),
        ("controllers.seed.leaseResyncSeconds", json!(2)),
        ("controllers.seed.leaseResyncMissThreshold", json!(10)),
        ("controllers.seedCare.syncPeriod", json!("30s")),
        ("controllers.seedCare.conditionThresholds", Value::Null),
        ("controllers.shoot.concurrentSyncs", json!(20)),
        ("controllers.shoot.syncPeriod", json!("1h0m0s")),
        ("controllers.shoot.retryDuration", json!("12h0m0s")),
        ("controllers.shoot.progressReportPeriod", Value::Null),
        ("controllers.shoot.reconcileInMaintenanceOnly", json!(false)),
        ("controllers.shoot.respectSyncPeriodOverwrite", json!(false)),
        ("controllers.shoot.dnsEntryTTLSeconds", json!(120)),
        ("controllers.shootCare.concurrentSyncs", json!(20)),
        ("controllers.shootCare.syncPeriod", json!("1m0s")),
        ("controllers.shootCare.staleExtensionHealthChecks.enabled", json!(true)),
        ("controllers.shootCare.staleExtensionHealthChecks.threshold", json!("5m0s")),
        ("controllers.shootCare.managedResourceProgressingThreshold", Value::Null),
        ("controllers.shootState.concurrentSyncs", json!(5)),
        ("controllers.shootState.syncPeriod", json!("6h0m0s")),
        ("controllers.shootStatus.concurrentSyncs", json!(5)),
        ("controllers.networkPolicy.concurrentSyncs", json!(5)),
        ("controllers.managedSeed.concurrentSyncs", json!(20)),
        ("controllers.managedSeed.syncPeriod", json!("1h0m0s")),
        ("controllers.managedSeed.waitSyncPeriod", json!("15s")),
        ("controllers.managedSeed.syncJitterPeriod", json!("5m0s")),
        ("controllers.managedSeed.jitterUpdates", json!(false)),
        ("controllers.tokenRequestor.concurrentSyncs", json!(5)),
        ("controllers.vpaEvictionRequirements.concurrentSyncs", json!(5)),
        ("controllers.tokenRequestorWorkloadIdentity.concurrentSyncs", json!(5)),
        ("controllers.tokenRequestorWorkloadIdentity.tokenExpirationDuration", json!("6h0m0s")),
        ("resources", Value::Null),
        ("leaderElection.leaderElect", json!(true)),
        ("leaderElection.leaseDuration", json!("15s")),
        ("leaderElection.renewDeadline", json!("10s")),
        ("leaderElection.retryPeriod", json!("2s")),
        ("leaderElection.resourceLock", json!("leases")),
        ("leaderElection.resourceName", json!("gardenlet-leader-election")),
        ("leaderElection.resourceNamespace", json!("garden")),
        ("logLevel", json!("info")),
        ("logFormat", json!("json")),
        ("server.healthProbes.bindAddress", json!("")),
        ("server.healthProbes.port", json!(2728)),
        ("server.metrics.bindAddress", json!("")),
        ("server.metrics.port", json!(2729)),
        ("debugging", Value::Null),
        ("logging.enabled", json!(false)),
        ("logging.vali.enabled", json!(false)),
        ("logging.vali.garden.storage", json!("100Gi")),
        ("logging.victoriaLogs.enabled", json!(false)),
        ("logging.victoriaLogs.garden.storage", json!("100Gi")),
        ("logging.shootEventLogging.enabled", json!(false)),
        ("logging.shootNodeLogging", Value::Null),
        ("sni.ingress.namespace", json!("istio-ingress")),
        ("sni.ingress.serviceName", json!("istio-ingressgateway")),
        ("sni.ingress.labels", gateway),
        ("exposureClassHandlers[0].sni.ingress.namespace", json!("istio-ingress-handler-internet")),
        ("exposureClassHandlers[0].sni.ingress.serviceName", json!("istio-ingressgateway")),
        ("exposureClassHandlers[0].sni.ingress.labels", handler),
        ("etcdConfig.etcdController.workers", json!(50)),
        ("etcdConfig.custodianController.workers", json!(10)),
        ("etcdConfig.backupCompactionController.workers", json!(3)),
        ("etcdConfig.backupCompactionController.enableBackupCompaction", json!(false)),
        ("etcdConfig.backupCompactionController.eventsThreshold", json!(1_000_000)),
        ("etcdConfig.backupCompactionController.metricsScrapeWaitDuration", json!("1m0s")),
        ("monitoring.shoot.enabled", json!(true)),
        ("nodeToleration", Value::Null),
        ("featureGates.DefaultSeccompProfile", json!(false)),
        ("featureGates.IstioTLSTermination", json!(true)),
        ("featureGates.DoNotCopyBackupCredentials", json!(true)),
        ("featureGates.OpenTelemetryCollector", json!(true)),
        ("featureGates.VictoriaLogsBackend", json!(false)),
        ("featureGates.CustomDNSServerInNodeLocalDNS", json!(true)),
        ("featureGates.VPNBondingModeRoundRobin", json!(false)),
        ("featureGates.PrometheusHealthChecks", json!(false)),
        ("featureGates.RemoveVali", json!(false)),
        ("featureGates.DisableNginxIngressInSeed", json!(true)),
        ("featureGates.RemoveHTTPProxyLegacyPort", json!(false)),
        ("edge.workers", json!(8)),
        ("edge.resourceManager", json!("Auto")),
        ("edge.stateDir", Value::Null),
        ("edge.heartbeat.probeTimeout", json!("2s")),
        ("edge.heartbeat.renewTimeout", json!("2s")),
        ("edge.heartbeat.intervalMax", Value::Null),
        ("edge.liveness.stallTimeout", json!("2m0s")),
        ("edge.liveness.tolerateOffline", json!(false)),
        ("edge.chartCache.maxSize", json!("64Mi")),
        ("edge.bootstrap.keep", json!(false)),
        ("edge.bootstrap.kubeconfig", Value::Null),
        ("edge.etcd.mode", json!("Plain")),
        ("edge.etcd.snapshots.store", json!("None")),
        ("edge.etcd.snapshots.keep", json!(7)),
        ("edge.exposure.type", json!("NodePort")),
    ];
    let document = usable(&[("exposureClassHandlers[0].name", json!("internet"))]).document;
    for (path, expected) in table {
        assert_eq!(read(&document, path), &expected, "{path}");
    }
}

/// Values that count as absent, and defaults that depend on other fields.
#[test]
fn defaults_in_special_cases() {
    let table = [
        ("seedClientConnection.qps", json!(0), "seedClientConnection.qps", json!(50)),
        ("seedClientConnection.burst", json!(0), "seedClientConnection.burst", json!(100)),
        ("server.metrics.port", json!(0), "server.metrics.port", json!(2729)),
        ("logLevel", json!(""), "logLevel", json!("info")),
        ("leaderElection.leaseDuration", json!("0s"), "leaderElection.leaseDuration", json!("15s")),
        (
            "leaderElection.resourceName",
            json!(""),
            "leaderElection.resourceName",
            json!("gardenlet-leader-election"),
        ),
        ("controllers.shoot", Value::Null, "controllers.shoot.concurrentSyncs", json!(20)),
        (
            "controllers.shootState.concurrentSyncs",
            json!(0),
            "controllers.shootState.concurrentSyncs",
            json!(0),
        ),
        ("logging.enabled", json!(true), "logging.vali.enabled", json!(true)),
        ("logging.enabled", json!(true), "logging.shootEventLogging.enabled", json!(true)),
        ("sni.ingress.labels", json!({}), "sni.ingress.labels", json!({})),
        (
            "controllers.shootCare.staleExtensionHealthChecks",
            json!({"threshold": "1m"}),
            "controllers.shootCare.staleExtensionHealthChecks",
            json!({"enabled": false, "threshold": "1m"}),
        ),
        (
            "exposureClassHandlers",
            json!([{"name": "a", "sni": {"ingress": {"namespace": "n", "labels": {}}}}]),
            "exposureClassHandlers[0].sni.ingress",
            json!({"namespace": "n", "serviceName": "istio-ingressgateway", "labels":
                {"app": "istio-ingressgateway", "gardener.cloud/role": "exposureclass-handler"}}),
        ),
    ];
    for (path, value, other, expected) in table {
        assert_eq!(read(&usable(&[(path, value)]).document, other), &expected, "{path}");
    }
    let both = usable(&[("logging.enabled", json!(true)), ("logging.vali.enabled", json!(false))]);
    assert_eq!(read(&both.document, "logging.vali.enabled"), false);
}

/// One row per field: a good value, and one of the wrong type.
#[test]
fn every_field_is_known_and_typed() {
    let (text, number, flag) = (json!("text"), json!(5), json!(true));
    let (duration, short, quantity, path) = (json!("1h"), json!("5s"), json!("10Gi"), json!("/state"));
    let credentials = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "x"});
    let fields: Vec<(&str, &Value)> = vec![
        ("gardenClientConnection.kubeconfig", &text),
        ("gardenClientConnection.acceptContentTypes", &text),
        ("gardenClientConnection.contentType", &text),
        ("seedClientConnection.kubeconfig", &text),
        ("shootClientConnection.kubeconfig", &text),
        ("gardenClientConnection.qps", &number),
        ("gardenClientConnection.burst", &number),
        ("gardenClientConnection.gardenClusterAddress", &text),
        ("gardenClientConnection.kubeconfigValidity.validity", &duration),
        ("gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin", &number),
        ("controllers.cacheSyncTimeout", &duration),
        ("controllers.backupBucket.concurrentSyncs", &number),
        ("controllers.backupEntry.concurrentSyncs", &number),
        ("controllers.backupEntry.deletionGracePeriodHours", &number),
        ("controllers.bastion.concurrentSyncs", &number),
        ("controllers.controllerInstallation.concurrentSyncs", &number),
        ("controllers.controllerInstallationCare.syncPeriod", &duration),
        ("controllers.controllerInstallationRequired.concurrentSyncs", &number),
        ("controllers.gardenlet.syncPeriod", &duration),
        ("controllers.seed.syncPeriod", &duration),
        ("controllers.seed.leaseResyncSeconds", &number),
        ("controllers.seed.leaseResyncMissThreshold", &number),
        ("controllers.seedCare.conditionThresholds[0].type", &text),
        ("controllers.shoot.progressReportPeriod", &duration),
        ("controllers.shoot.reconcileInMaintenanceOnly", &flag),
        ("controllers.shoot.respectSyncPeriodOverwrite", &flag),
        ("controllers.shootCare.staleExtensionHealthChecks.enabled", &flag),
        ("controllers.shootCare.managedResourceProgressingThreshold", &duration),
        ("controllers.shootCare.webhookRemediatorEnabled", &flag),
        ("controllers.shootState.syncPeriod", &duration),
        ("controllers.shootStatus.concurrentSyncs", &number),
        ("controllers.managedSeed.waitSyncPeriod", &duration),
        ("controllers.managedSeed.jitterUpdates", &flag),
        ("controllers.tokenRequestorWorkloadIdentity.tokenExpirationDuration", &duration),
        ("controllers.vpaEvictionRequirements.concurrentSyncs", &number),
        ("resources.capacity.shoots", &quantity),
        ("leaderElection.leaderElect", &flag),
        ("leaderElection.resourceNamespace", &text),
        ("server.healthProbes.bindAddress", &text),
        ("server.metrics.port", &number),
        ("debugging.enableProfiling", &flag),
        ("debugging.enableContentionProfiling", &flag),
        ("featureGates.RemoveVali", &flag),
        ("logging.vali.enabled", &flag),
        ("logging.victoriaLogs.garden.storage", &quantity),
        ("logging.shootNodeLogging.shootPurposes[0]", &text),
        ("sni.ingress.namespace", &text),
        ("sni.ingress.labels.app", &text),
        ("etcdConfig.etcdController.workers", &number),
        ("etcdConfig.backupCompactionController.enableBackupCompaction", &flag),
        ("etcdConfig.backupCompactionController.activeDeadlineDuration", &duration),
        ("etcdConfig.backupLeaderElection.reelectionPeriod", &duration),
        ("etcdConfig.backupLeaderElection.etcdConnectionTimeout", &duration),
        ("etcdConfig.featureGates.UseEtcdWrapper", &flag),
        ("etcdConfig.deltaSnapshotRetentionPeriod", &duration),
        ("monitoring.shoot.remoteWrite.url", &text),
        ("monitoring.shoot.remoteWrite.keep[0]", &text),
        ("monitoring.shoot.externalLabels.site", &text),
        ("nodeToleration.defaultNotReadyTolerationSeconds", &number),
        ("nodeToleration.defaultUnreachableTolerationSeconds", &number),
        ("seedConfig.metadata.labels.site", &text),
        ("seedConfig.metadata.annotations.site", &text),
        ("seedConfig.spec.provider.zones[2]", &text),
        ("seedConfig.spec.networks.blockCIDRs[0]", &text),
        ("seedConfig.spec.dns.internal.zone", &text),
        ("seedConfig.spec.dns.internal.credentialsRef", &credentials),
        ("seedConfig.spec.taints[0].key", &text),
        ("seedConfig.spec.volume.minimumSize", &quantity),
        ("seedConfig.spec.settings.excessCapacityReservation.enabled", &flag),
        ("seedConfig.spec.settings.excessCapacityReservation.configs[0].resources.cpu", &number),
        ("seedConfig.spec.settings.scheduling.visible", &flag),
        ("seedConfig.spec.settings.loadBalancerServices.annotations.a", &text),
        ("seedConfig.spec.settings.loadBalancerServices.proxyProtocol.allowed", &flag),
        ("seedConfig.spec.settings.loadBalancerServices.zonalIngress.enabled", &flag),
        ("seedConfig.spec.settings.verticalPodAutoscaler.maxAllowed.cpu", &quantity),
        ("seedConfig.spec.settings.persistentVolumeClaimAutoscaler.enabled", &flag),
        ("seedConfig.spec.settings.dependencyWatchdog.prober.enabled", &flag),
        ("seedConfig.spec.settings.topologyAwareRouting.enabled", &flag),
        ("edge.stateDir", &path),
        ("edge.heartbeat.probeTimeout", &short),
        ("edge.liveness.stallTimeout", &duration),
        ("edge.bootstrap.keep", &flag),
    ];
    for (path, good) in fields {
        let odd = warnings(&[(path, good.clone())]);
        assert!(odd.iter().all(|warning| warning.contains(": has no effect: ")), "{path}: {odd:?}");
        let problems = errors(&[(path, json!(["wrong"]))]);
        let parent = path.rsplit_once('.').map_or(path, |(parent, _)| parent);
        assert!(problems[0].starts_with(path) || problems[0].starts_with(parent), "{path}: {problems:?}");
        assert!(problems[0].contains("expected"), "{path}: {problems:?}");
    }
}

#[test]
fn every_rule() {
    let garden = "gardenClientConnection";
    let min = "gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMin";
    let max = "gardenClientConnection.kubeconfigValidity.autoRotationJitterPercentageMax";
    let handler = "exposureClassHandlers[0]";
    let table: Vec<(&str, Value, &str)> = vec![
        (
            "apiVersion",
            json!("v1"),
            "apiVersion: unknown value \"v1\"; known: gardenlet.config.gardener.cloud/v1alpha1",
        ),
        ("kind", json!("ConfigMap"), "kind: unknown value \"ConfigMap\"; known: GardenletConfiguration"),
        (
            "seedClientConnection.burst",
            json!(-1),
            "seedClientConnection.burst: must be from 1 to 10000, not -1: ",
        ),
        (
            "gardenClientConnection.bootstrapKubeconfig.name",
            json!("x"),
            "gardenClientConnection.bootstrapKubeconfig.namespace: must be given",
        ),
        (
            "gardenClientConnection.kubeconfigSecret",
            json!({"name": "", "namespace": "garden"}),
            "gardenClientConnection.kubeconfigSecret.name: must not be empty",
        ),
        (
            "gardenClientConnection.kubeconfigValidity.validity",
            json!("9m59s"),
            "gardenClientConnection.kubeconfigValidity.validity: must be from 10m to 596523h, not 9m59s: ",
        ),
        (min, json!(0), "must be from 1 to 99, not 0: "),
        (max, json!(101), "must be from 2 to 100, not 101: "),
        (min, json!(90), "must be less than autoRotationJitterPercentageMax: 90 and 90"),
        ("controllers.bastion.concurrentSyncs", json!(-1), "must be from 0 to 1000, not -1: "),
        (
            "controllers.shoot.syncPeriod",
            json!("-1s"),
            "controllers.shoot.syncPeriod: must not be negative: -1s",
        ),
        (
            "controllers.seed.syncPeriod",
            json!(60),
            "controllers.seed.syncPeriod: expected a duration such as 1h30m or 10s, found 60",
        ),
        ("controllers.seed.syncPeriod", json!("1 h"), "found the text \"1 h\""),
        (
            "controllers.seed.leaseResyncSeconds",
            json!(3_000_000_000_u32),
            "expected a whole number of 32 bits, found 3000000000",
        ),
        ("controllers.shoot.dnsEntryTTLSeconds", json!(29), "must be from 30 to 600, not 29: "),
        ("controllers.shoot.dnsEntryTTLSeconds", json!(601), "must be from 30 to 600, not 601: "),
        (
            "controllers.shootCare.conditionThresholds",
            json!([{"type": "a", "duration": "-1s"}]),
            "controllers.shootCare.conditionThresholds[0].duration: must not be negative: -1s",
        ),
        (
            "controllers.seedCare.conditionThresholds",
            json!([{"duration": "1s"}]),
            "controllers.seedCare.conditionThresholds[0].type: must be given",
        ),
        (
            "controllers.backupEntry.deletionGracePeriodShootPurposes",
            json!(["production"]),
            "controllers.backupEntry.deletionGracePeriodShootPurposes: needs deletionGracePeriodHours above 0",
        ),
        (
            "controllers.backupEntry",
            json!({"deletionGracePeriodHours": 1, "deletionGracePeriodShootPurposes": ["testing", "fun"]}),
            "controllers.backupEntry.deletionGracePeriodShootPurposes[1]: unknown value \"fun\"; known: evaluation, testing, development, infrastructure, production",
        ),
        (
            "controllers.networkPolicy.additionalNamespaceSelectors",
            json!([{"matchLabels": {"a b": "c"}}]),
            "controllers.networkPolicy.additionalNamespaceSelectors[0]: \"a b\" is not a qualified name",
        ),
        (
            "resources.reserved.shoots",
            json!("5"),
            "resources.reserved.shoots: needs resources.capacity.shoots",
        ),
        (
            "resources",
            json!({"capacity": {"shoots": "1k"}, "reserved": {"shoots": 1001}}),
            "resources.reserved.shoots: must not exceed the capacity: 1001 and \"1k\"",
        ),
        ("resources.capacity.shoots", json!("many"), "resources.capacity: expected a map of quantities"),
        (
            "leaderElection.leaseDuration",
            json!("10s"),
            "leaderElection.leaseDuration: must exceed renewDeadline: 10s and 10s",
        ),
        (
            "leaderElection.renewDeadline",
            json!("2400ms"),
            "leaderElection.renewDeadline: must exceed 1.2 times retryPeriod: 2400ms and 2s",
        ),
        ("leaderElection.retryPeriod", json!("-2s"), "leaderElection.retryPeriod: must not be negative: -2s"),
        ("leaderElection.resourceLock", json!("endpoints"), "unknown value \"endpoints\"; known: leases"),
        ("logLevel", json!("warn"), "logLevel: unknown value \"warn\"; known: debug, info, error"),
        ("logFormat", json!("xml"), "logFormat: unknown value \"xml\"; known: json, text"),
        ("server.metrics.port", json!(65_536), "server.metrics.port: must be from 1 to 65535, not 65536: "),
        (
            "featureGates.Nonsense",
            json!(true),
            "featureGates.Nonsense: unknown feature gate; known: DefaultSeccompProfile, ",
        ),
        (
            "featureGates.DoNotCopyBackupCredentials",
            json!(false),
            "featureGates.DoNotCopyBackupCredentials: is locked to true",
        ),
        (
            "sni.ingress.serviceExternalIP",
            json!("1.2.3"),
            "sni.ingress.serviceExternalIP: \"1.2.3\" is not an IP address",
        ),
        (handler, json!({"name": "a.b"}), "exposureClassHandlers[0].name: \"a.b\" is not a DNS label"),
        (
            handler,
            json!({"name": "a", "loadBalancerService": {"class": "a/b/c"}}),
            "exposureClassHandlers[0].loadBalancerService.class: \"a/b/c\" is not a qualified name",
        ),
        (
            handler,
            json!({"name": "a", "sni": {"ingress": {"serviceExternalIP": "x"}}}),
            "exposureClassHandlers[0].sni.ingress.serviceExternalIP: \"x\" is not an IP address",
        ),
        (
            "nodeToleration.defaultNotReadyTolerationSeconds",
            json!(-1),
            "must be from 0 to 315360000, not -1: ",
        ),
        (garden, json!("x"), "gardenClientConnection: expected fields, found the text \"x\""),
        ("edge.workers", json!(0), "edge.workers: must be from 1 to 32, not 0: "),
        ("edge.workers", json!(33), "edge.workers: must be from 1 to 32, not 33: "),
        (
            "edge.resourceManager",
            json!("Internal"),
            "edge.resourceManager: unknown value \"Internal\"; known: Auto, Embedded, External",
        ),
        (
            "edge.liveness.stallTimeout",
            json!("1s"),
            "edge.liveness.stallTimeout: must be from 10s to 24h, not 1s: ",
        ),
        (
            "edge.heartbeat.probeTimeout",
            json!("0s"),
            "edge.heartbeat.probeTimeout: must be from 1s to 15s, not 0s: ",
        ),
        (
            "edge.heartbeat.renewTimeout",
            json!("900ms"),
            "edge.heartbeat.renewTimeout: must be from 1s to 15s, not 900ms: ",
        ),
        (
            "edge.heartbeat.intervalMax",
            json!("11s"),
            "edge.heartbeat.intervalMax: must be from 1s to 10s, not 11s: ",
        ),
        (
            "edge.heartbeat.intervalMax",
            json!("1s"),
            "edge.heartbeat.intervalMax: must not be less than controllers.seed.leaseResyncSeconds (2)",
        ),
        (
            "edge.chartCache.maxSize",
            json!("big"),
            "edge.chartCache.maxSize: expected a quantity such as 100Gi",
        ),
    ];
    for (path, value, expected) in table {
        let problems = errors(&[(path, value)]);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
}

#[test]
fn every_rule_of_the_seed() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "x"});
    let domain = json!({"type": "local", "domain": "d.example.org", "credentialsRef": secret});
    let backup = |provider: &str| json!({"provider": provider, "credentialsRef": secret});
    let zone = |name: &str| json!([{"name": name}]);
    let table: Vec<(&str, Value, &str)> = vec![
        ("metadata", json!({}), "metadata.name: must be given"),
        ("metadata.name", json!("a.b"), "metadata.name: \"a.b\" is not a DNS label"),
        ("metadata.labels", json!({"-a": "b"}), "metadata.labels: \"-a\": \"-a\" is not a qualified name"),
        ("metadata.labels", json!({"a": "b c"}), "metadata.labels: \"a\": \"b c\" is not a label value"),
        (
            "metadata.annotations",
            json!({"a b": ""}),
            "metadata.annotations: \"a b\": \"a b\" is not a qualified name",
        ),
        ("spec.provider.zones", json!(["a", "a"]), "spec.provider.zones[1]: \"a\" occurs twice"),
        ("spec.networks.pods", json!("10.0.0.0"), "spec.networks.pods: \"10.0.0.0\" is not an address range"),
        ("spec.networks.pods", json!("fd00::/48"), "spec.networks.pods: must be an IPv4 range"),
        ("spec.networks.ipFamilies", json!(["IPv6"]), "spec.networks.pods: must be an IPv6 range"),
        ("spec.networks.ipFamilies", json!(["IPv5"]), "spec.networks.ipFamilies[0]: unknown value \"IPv5\""),
        (
            "spec.networks.ipFamilies",
            json!(["IPv4", "IPv4"]),
            "spec.networks.ipFamilies: \"IPv4\" occurs twice",
        ),
        (
            "spec.networks.services",
            json!("11.0.0.0/7"),
            "spec.networks.services: must not be larger than /8: /7",
        ),
        (
            "spec.networks.nodes",
            json!("10.51.7.0/24"),
            "spec.networks.nodes: must not overlap with seedConfig.spec.networks.pods",
        ),
        (
            "spec.networks.services",
            json!("10.51.0.0/16"),
            "spec.networks.services: must not overlap with seedConfig.spec.networks.pods",
        ),
        (
            "spec.networks.pods",
            json!("242.1.0.0/16"),
            "spec.networks.pods: must not overlap with 242.0.0.0/8",
        ),
        (
            "spec.networks.shootDefaults",
            json!({"pods": "10.90.0.0/16", "services": "10.90.1.0/24"}),
            "spec.networks.shootDefaults.services: must not overlap with seedConfig.spec.networks.shootDefaults.pods",
        ),
        (
            "spec.backup",
            backup("other"),
            "spec.backup.region: must be given, as the provider is not the seed's",
        ),
        (
            "spec.backup",
            json!({"credentialsRef": secret, "region": "x"}),
            "spec.backup.provider: must be given",
        ),
        ("spec.backup", json!({"provider": "local"}), "spec.backup.credentialsRef: must be given"),
        ("spec.taints", json!([{"value": "x"}]), "spec.taints[0].key: must be given"),
        ("spec.taints", json!([{"key": "x"}, {"key": "x"}]), "spec.taints[1]: \"x=\" occurs twice"),
        (
            "spec.volume.providers",
            json!([{"purpose": "", "name": "x"}]),
            "spec.volume.providers[0].purpose: must not be empty",
        ),
        ("spec.volume.providers", json!([{"purpose": "a"}]), "spec.volume.providers[0].name: must be given"),
        (
            "spec.volume.providers",
            json!([{"purpose": "a", "name": "x"}, {"purpose": "a", "name": "y"}]),
            "spec.volume.providers[1].purpose: \"a\" occurs twice",
        ),
        ("spec.ingress", json!({"controller": {"kind": "nginx"}}), "spec.ingress.domain: must be given"),
        ("spec.ingress.domain", json!("A.b"), "spec.ingress.domain: \"A.b\" is not a DNS name"),
        (
            "spec.ingress.controller.kind",
            json!("traefik"),
            "spec.ingress.controller.kind: unknown value \"traefik\"; known: nginx",
        ),
        ("spec.ingress", json!({"domain": "a"}), "spec.ingress.controller.kind: must be given"),
        (
            "spec.dns.provider",
            Value::Null,
            "spec.dns.provider: must be given, as there is an ingress controller",
        ),
        ("spec.dns.provider.type", json!(""), "spec.dns.provider.type: must be given"),
        ("spec.dns.provider.credentialsRef", Value::Null, "spec.dns.provider.credentialsRef: must be given"),
        (
            "spec.dns.internal",
            Value::Null,
            "spec.dns.internal: must be given: type, domain and credentialsRef",
        ),
        ("spec.dns.internal.domain", json!(""), "spec.dns.internal.domain: must be given"),
        ("spec.dns.internal.domain", json!("-a"), "spec.dns.internal.domain: \"-a\" is not a DNS name"),
        ("spec.dns.internal.type", Value::Null, "spec.dns.internal.type: must be given"),
        (
            "spec.dns.internal.credentialsRef.namespace",
            json!(""),
            "spec.dns.internal.credentialsRef.namespace: must be given",
        ),
        (
            "spec.dns.internal.credentialsRef.kind",
            json!("ConfigMap"),
            "spec.dns.internal.credentialsRef: must be v1 Secret or core.gardener.cloud/v1beta1 InternalSecret or \
             security.gardener.cloud/v1alpha1 WorkloadIdentity, not v1 ConfigMap",
        ),
        (
            "spec.dns.defaults",
            json!([domain, domain]),
            "spec.dns.defaults[1].domain: \"d.example.org\" occurs twice",
        ),
        ("spec.dns.defaults", json!([{"type": "x"}]), "spec.dns.defaults[0].domain: must be given"),
        (
            "spec.settings.loadBalancerServices.externalTrafficPolicy",
            json!("Near"),
            "unknown value \"Near\"; known: Cluster, Local",
        ),
        (
            "spec.settings.loadBalancerServices.class",
            json!("a b"),
            "spec.settings.loadBalancerServices.class: \"a b\" is not a qualified name",
        ),
        (
            "spec.settings.loadBalancerServices.zones",
            zone("c"),
            "spec.settings.loadBalancerServices.zones[0].name: \"c\" is not in provider.zones",
        ),
        (
            "spec.settings.loadBalancerServices.zones",
            json!([{"name": "a"}, {"name": "a"}]),
            "zones[1].name: \"a\" occurs twice",
        ),
        (
            "spec.settings.zoneSelection.mode",
            json!("Avoid"),
            "spec.settings.zoneSelection.mode: unknown value \"Avoid\"; known: Prefer, Enforce",
        ),
        (
            "spec.settings.excessCapacityReservation.configs",
            json!([{}]),
            "configs[0].resources: must be given",
        ),
    ];
    for (path, value, expected) in table {
        let problems = errors(&[(&format!("seedConfig.{path}"), value)]);
        let expected = if expected.starts_with("spec") || expected.starts_with("metadata") {
            format!("seedConfig.{expected}")
        } else {
            expected.to_owned()
        };
        assert!(problems.iter().any(|problem| problem.contains(&expected)), "{expected}: {problems:?}");
    }
    let one_zone = ("seedConfig.spec.provider.zones", json!(["a"]));
    let zonal = ("seedConfig.spec.settings.loadBalancerServices.zones", zone("a"));
    let routing = ("seedConfig.spec.settings.topologyAwareRouting.enabled", json!(true));
    for change in [zonal, routing] {
        let problems = errors(&[one_zone.clone(), change]);
        assert!(problems[0].ends_with(": needs at least two zones in provider.zones"), "{problems:?}");
    }
    assert_eq!(errors(&[("seedConfig", Value::Null)]).len(), 1);
}

#[test]
fn requirements_of_the_garden_alone_are_warnings() {
    let table = ["provider.type", "provider.region", "networks.pods", "networks.services", "ingress"];
    for path in table {
        let path = format!("seedConfig.spec.{path}");
        let expected = format!("{path}: is empty: the garden refuses such a Seed");
        assert_eq!(warnings(&[(&path, Value::Null)]), [expected]);
    }
}

#[test]
fn two_families_may_mix_ranges() {
    let networks = json!({
        "ipFamilies": ["IPv4", "IPv6"], "nodes": "10.50.0.0/16", "pods": "fd00:1::/48", "services": "10.52.0.0/16",
        "shootDefaults": {"pods": "10.51.0.0/16"}
    });
    settings(&[("seedConfig.spec.networks", networks)]);
}

#[test]
fn older_documentation_is_answered_with_what_replaced_it() {
    let seed = "was removed: the agent reaches the seed from inside the cluster";
    let only_type =
        json!({"spec": {"provider": {"type": "aws"}, "secretRef": {"name": "s", "namespace": "garden"}}});
    let flat = json!({"type": "aws", "secretRef": {"name": "s", "namespace": "garden"}});
    // These have errors too: they lack what a Seed needs today.
    for (value, path) in [(only_type, "seedConfig.spec.secretRef"), (flat, "seedConfig.secretRef")] {
        let mut document = minimal();
        document["seedConfig"] = value;
        let problems = texts(&load(&document.to_string(), "c.yaml").unwrap_err());
        assert!(
            problems.iter().any(|problem| problem.starts_with(path) && problem.contains(seed)),
            "{problems:?}"
        );
        assert!(
            problems.iter().any(|problem| problem.starts_with("seedConfig.spec.dns.internal: ")),
            "{problems:?}"
        );
    }
    let problems =
        errors(&[("seedConfig", Value::Null), ("seedSelector", json!({"matchLabels": {"a": "b"}}))]);
    assert!(
        problems[1].starts_with("seedSelector: was removed: one process serves one seed."),
        "{problems:?}"
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
    let credentials = "seedConfig.spec.backup.secretRef: warning: was replaced by credentialsRef";
    let problems =
        errors(&[("seedConfig.spec.backup", json!({"provider": "local", "secretRef": {"name": "x"}}))]);
    assert!(problems.iter().any(|problem| problem.starts_with(credentials)), "{problems:?}");
    let with_warning = warnings(&[("kubernetesLogLevel", json!(0))]);
    assert_eq!(with_warning, ["kubernetesLogLevel: was removed: logLevel applies to everything"]);
}

#[test]
fn fields_without_effect_are_warnings() {
    let table = [
        ("sedConfig", json!({}), "sedConfig: unknown field, ignored; did you mean \"seedConfig\"?"),
        (
            "controllers.seed.syncPerod",
            json!(1),
            "controllers.seed.syncPerod: unknown field, ignored; did you mean \"syncPeriod\"?",
        ),
        ("controllers.seed.leaseResync", json!(1), "controllers.seed.leaseResync: unknown field, ignored"),
        (
            "seedConfig.spec.taints",
            json!([{"key": "a", "vlaue": "b"}]),
            "seedConfig.spec.taints[0].vlaue: unknown field, passed on to the garden; did you mean \"value\"?",
        ),
        (
            "seedConfig.spec.newer",
            json!({"a": 1}),
            "seedConfig.spec.newer: unknown field, passed on to the garden",
        ),
        (
            "gardenClientConnection.bootstrapKubeconfig",
            json!({"name": "a", "namespace": "b"}),
            "gardenClientConnection.bootstrapKubeconfig: has no effect without kubeconfigSecret, which is where the agent's own kubeconfig is kept",
        ),
        (
            "edge.bootstrap.kubeconfig",
            json!("/b"),
            "edge.bootstrap.kubeconfig: has no effect without gardenClientConnection.kubeconfigSecret",
        ),
        (
            "edge.registries",
            json!([{"host": "r.example.org", "rewrites": [{"from": "a/", "to": "b/"}]}]),
            "edge.registries[0].rewrites: has no effect without mirrors",
        ),
    ];
    for (path, value, expected) in table {
        assert_eq!(warnings(&[(path, value)]), [expected], "{path}");
    }
}

#[test]
fn problems_come_all_at_once_and_to_a_maximum() {
    let problems = errors(&[
        ("logLevel", json!("x")),
        ("edge.workers", json!(0)),
        ("seedConfig.metadata.name", json!("A")),
    ]);
    let paths: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().unwrap()).collect();
    assert_eq!(paths, ["edge.workers", "logLevel", "seedConfig.metadata.name"]);
    let gates: serde_json::Map<String, Value> = (0..300).map(|n| (format!("Gate{n}"), json!(true))).collect();
    assert_eq!(errors(&[("featureGates", Value::Object(gates))]).len(), 200);
}

#[test]
fn texts_that_are_no_document_name_the_file() {
    let table = [
        ("a: [1\n", "c.yaml: line "),
        ("- a\n", "c.yaml: is neither a YAML nor a JSON document with fields"),
        ("", "apiVersion: must be given: gardenlet.config.gardener.cloud/v1alpha1"),
        (&"#".repeat((1 << 20) + 1), "c.yaml: has 1048577 bytes; a configuration has at most 1048576"),
    ];
    for (text, expected) in table {
        let problems = texts(&load(text, "c.yaml").unwrap_err());
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
}

#[test]
fn settings_are_what_was_written() {
    let text = "
apiVersion: gardenlet.config.gardener.cloud/v1alpha1
kind: GardenletConfiguration
gardenClientConnection:
  qps: 60.5
  burst: 120
  bootstrapKubeconfig: {name: gardenlet-kubeconfig-bootstrap, namespace: garden}
  kubeconfigSecret: {name: gardenlet-kubeconfig, namespace: garden}
  kubeconfigValidity: {validity: 48h, autoRotationJitterPercentageMin: 65, autoRotationJitterPercentageMax: 85}
seedClientConnection: {kubeconfig: /k}
controllers:
  controllerInstallation: {concurrentSyncs: 0}
  seed: {leaseResyncSeconds: 3}
  seedCare: {conditionThresholds: [{type: SeedSystemComponentsHealthy, duration: 1m30s}]}
resources: {capacity: {shoots: 50}, reserved: {shoots: \"5\"}}
leaderElection: {leaderElect: false, leaseDuration: 1s}
logLevel: debug
logFormat: text
server: {healthProbes: {bindAddress: 127.0.0.1, port: 9000}}
featureGates: {RemoveVali: true}
seedConfig:
  metadata: {name: edge-1, labels: {site: north}, annotations: {Note: x}}
  spec:
    dns: {internal: {type: local, domain: i.example.org, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: d}}}
    newer: 1
edge: {resourceManager: External, stateDir: /state, heartbeat: {renewTimeout: 5s, intervalMax: 10s}, bootstrap: {keep: true, kubeconfig: /b}}
";
    let settings = load(text, "c.yaml").unwrap().settings;
    let garden = &settings.garden_client_connection;
    let reference =
        |name: &str| Some(SecretReference { name: name.to_owned(), namespace: "garden".to_owned() });
    assert_eq!((garden.connection.qps, garden.connection.burst), (60.5, 120));
    assert_eq!(garden.bootstrap_kubeconfig, reference("gardenlet-kubeconfig-bootstrap"));
    assert_eq!(garden.kubeconfig_secret, reference("gardenlet-kubeconfig"));
    assert_eq!(garden.validity, Some(Duration::from_secs(172_800)));
    assert_eq!(
        (garden.auto_rotation_jitter_percentage_min, garden.auto_rotation_jitter_percentage_max),
        (65, 85)
    );
    assert_eq!(settings.seed_client_connection.kubeconfig.as_deref(), Some("/k".as_ref()));
    let controllers = &settings.controllers;
    assert_eq!(controllers.controller_installation_workers, 1);
    assert_eq!(controllers.controller_installation_care_sync_period, Duration::from_secs(30));
    assert_eq!(controllers.seed.lease_resync, Duration::from_secs(3));
    assert_eq!(settings.resources.capacity["shoots"], "50");
    assert_eq!(settings.resources.reserved["shoots"], "5");
    assert!(!settings.leader_election.leader_elect);
    assert_eq!(settings.leader_election.resource_name, "gardenlet-leader-election");
    assert_eq!(settings.log_level, log::LevelFilter::Debug);
    assert_eq!(settings.log_format, crate::base::log::LogFormat::Text);
    assert_eq!(
        (settings.health_probes.bind_address.as_str(), settings.health_probes.port),
        ("127.0.0.1", 9000)
    );
    assert_eq!(settings.metrics.port, 2729);
    assert!(settings.feature_gates["RemoveVali"] && settings.feature_gates.len() == 57);
    assert_eq!(settings.seed_config.labels["site"], "north");
    assert_eq!(settings.seed_config.annotations["Note"], "x");
    assert_eq!(settings.seed_config.spec["newer"], 1);
    assert!(settings.seed_config.spec.get("networks").is_none());
    let edge = &settings.edge;
    assert_eq!((edge.workers, edge.resource_manager), (8, ResourceManager::External));
    assert!(edge.bootstrap_keep);
    assert_eq!(edge.state_dir.as_deref(), Some("/state".as_ref()));
    assert_eq!(edge.bootstrap_kubeconfig.as_deref(), Some("/b".as_ref()));
    assert_eq!(edge.heartbeat.renew_timeout, Duration::from_secs(5));
    assert_eq!(edge.heartbeat.probe_timeout, Duration::from_secs(2));
    assert_eq!(edge.heartbeat.interval_max, Duration::from_secs(10));
    assert_eq!(edge.liveness_stall_timeout, Duration::from_secs(120));
    assert!(!edge.liveness_tolerate_offline);
    assert_eq!(edge.chart_cache_bytes_max, 64 << 20);
}

#[test]
fn when_shoots_are_reconciled_is_read() {
    let read = |value: Value| {
        let shoot = settings(&[("controllers.shoot", value)]).controllers.shoot;
        let periods = [shoot.sync_period, shoot.retry_duration].map(|period| period.as_secs() / 3_600);
        (periods, shoot.respect_sync_period_overwrite, shoot.reconcile_in_maintenance_only)
    };
    assert_eq!(read(json!({})), ([1, 12], false, false));
    let (periods, flags) =
        (json!({"syncPeriod": "2h", "retryDuration": "24h"}), json!({"respectSyncPeriodOverwrite": true}));
    assert_eq!(read(periods), ([2, 24], false, false));
    assert_eq!(read(flags), ([1, 12], true, false));
    assert_eq!(read(json!({"reconcileInMaintenanceOnly": true})), ([1, 12], false, true));
    let period =
        |value: Value| settings(&[("controllers.shoot", value)]).controllers.shoot.progress_report_period;
    assert_eq!(period(json!({})), None);
    assert_eq!(period(json!({"progressReportPeriod": "5s"})), Some(Duration::from_secs(5)));
}

#[test]
fn leases_are_renewed_less_often_where_nobody_says_how_often() {
    let (deadline, period) = ("leaderElection.renewDeadline", "leaderElection.retryPeriod");
    let table = [
        (vec![], (2_000, 4_000)),
        (vec![(period, json!("0s"))], (2_000, 4_000)),
        (vec![(period, json!("2s"))], (2_000, 2_000)),
        (vec![(period, json!("5s"))], (5_000, 5_000)),
        (vec![(deadline, json!("12s"))], (2_000, 4_000)),
        // A renewal and a retry must fit into half of the deadline.
        (vec![(deadline, json!("8s"))], (2_000, 3_200)),
        (vec![(deadline, json!("3s"))], (2_000, 2_000)),
    ];
    for (changes, (retry_ms, renew_ms)) in table {
        let election = settings(&changes).leader_election;
        let ms = Duration::from_millis;
        assert_eq!(
            (election.retry_period, election.renew_period),
            (ms(retry_ms), ms(renew_ms)),
            "{changes:?}"
        );
    }
}

#[test]
fn the_least_configuration_is_enough() {
    let settings = settings(&[]);
    assert_eq!(settings.seed_config.name, "edge-1");
    assert_eq!(settings.controllers.seed.lease_resync, Duration::from_secs(2));
    assert_eq!(settings.edge.resource_manager, ResourceManager::Auto);
    assert_eq!(settings.garden_client_connection.kubeconfig_secret, None);
}

/// Broken texts are errors, or settings, but never a panic.
#[test]
fn cut_and_changed_texts_do_not_panic() {
    let good = with(&[("resources", json!({"capacity": {"a": 1}}))]);
    for end in (0..good.len()).step_by(7) {
        let _ = load(&good[..end], "c.yaml");
    }
    for (index, byte) in good.bytes().enumerate().filter(|(_, byte)| b"{}[]:,\"".contains(byte)).step_by(3) {
        for other in ["0", "{", "]", "\"", "null"] {
            let changed = format!("{}{other}{}", &good[..index], &good[index + 1..]);
            let _ = (byte, load(&changed, "c.yaml"));
        }
    }
}

/// Fields in lists or of other APIs: known, and passed on unchanged.
#[test]
fn a_rich_seed_has_no_unknown_fields() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "x", "uid": "1",
        "resourceVersion": "2", "fieldPath": "spec"});
    let zones = json!([{"name": "a", "annotations": {"x": "y"}, "externalTrafficPolicy": "Local",
        "proxyProtocol": {"allowed": true}}]);
    let any = json!({"apiVersion": "x/v1", "kind": "Any", "deep": [{"a": 1}]});
    let spec = json!({
        "provider": {"type": "local", "region": "north", "zones": ["a", "b"], "providerConfig": any},
        "networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16", "services": "10.52.0.0/16"},
        "backup": {"provider": "other", "region": "south", "credentialsRef": secret, "providerConfig": any},
        "dns": {
            "internal": {"type": "local", "domain": "i.example.org", "zone": "z", "credentialsRef": secret},
            "provider": {"type": "local", "credentialsRef": {"apiVersion": "security.gardener.cloud/v1alpha1",
                "kind": "WorkloadIdentity", "namespace": "garden", "name": "w"}},
            "defaults": [{"type": "local", "domain": "d.example.org", "zone": "z", "credentialsRef": secret}]
        },
        "ingress": {"domain": "ingress.example.org", "controller": {"kind": "nginx", "providerConfig": any}},
        "taints": [{"key": "a", "value": "b"}, {"key": "a", "value": "c"}],
        "settings": {
            "excessCapacityReservation": {"configs": [{"resources": {"cpu": "2", "memory": "6Gi"},
                "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]}]},
            "loadBalancerServices": {"class": "example.org/fast", "zones": zones},
            "verticalPodAutoscaler": {"enabled": true, "featureGates": {"InPlace": true}},
            "dependencyWatchdog": {"weeder": {"enabled": true}, "prober": {"enabled": false}},
            "zoneSelection": {"mode": "Prefer"}
        },
        "accessRestrictions": [{"name": "eu-access-only", "options": {"a": "b"}}],
        "extensions": [{"type": "x", "providerConfig": any}],
        "resources": [{"name": "r", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}]
    });
    let metadata = json!({"name": "edge-1", "generateName": "", "namespace": "", "uid": "", "resourceVersion": "",
        "selfLink": "", "generation": 1, "creationTimestamp": null, "finalizers": ["a"]});
    let changes = [("seedConfig", json!({"metadata": metadata, "spec": spec}))];
    assert_eq!(usable(&changes).seed_config.spec, spec);
    assert!(warnings(&changes).iter().all(|warning| warning.contains(": has no effect: ")));
}

#[test]
fn components_are_chosen() {
    let chosen = json!({"profile": "core", "disabled": ["vpa-crds"], "nodes": ["node-exporter"]});
    let settings = settings(&[("edge.components", chosen)]);
    let nodes = settings.edge.nodes();
    assert_eq!((nodes.has_exporter, nodes.has_problem_detector), (true, false));
    assert!(
        settings.edge.components.is_disabled("vpa-crds") && !settings.edge.components.is_disabled("system")
    );
    let table = [
        ("edge.components.profile", json!("full"), "full is not available yet"),
        ("edge.components.profile", json!("big"), "known: core, full"),
        ("edge.components.nodes", json!(["fluent-bit"]), "known: node-exporter, node-problem-detector"),
        (
            "edge.components.disabled",
            json!(["istio"]),
            "known: cluster-identity, etcd-crds, machine-crds, system",
        ),
    ];
    for (path, value, expected) in table {
        assert!(errors(&[(path, value)])[0].contains(expected), "{path}");
    }
}

#[test]
fn registries_are_read_and_checked() {
    let registry = json!({"host": "registry.example.org", "mirrors": ["https://m.example.org/x", "http://n:5000"],
        "rewrites": [{"from": "a/", "to": "b/"}, {"from": "c"}], "caFile": "/ca", "certificateFile": "/c",
        "keyFile": "/k", "layoutDir": "/l", "insecure": true});
    let settings = settings(&[("edge.registries", json!([registry, {"host": "other:5000"}]))]);
    let text = str::to_owned;
    let expected = settings::Registry {
        host: text("registry.example.org"),
        mirrors: vec![text("https://m.example.org/x"), text("http://n:5000")],
        rewrites: vec![(text("a/"), text("b/")), (text("c"), String::new())],
        ca_file: Some("/ca".into()),
        certificate_file: Some("/c".into()),
        key_file: Some("/k".into()),
        layout_dir: Some("/l".into()),
        insecure: true,
    };
    assert_eq!(settings.edge.registries[0], expected);
    let bare = settings::Registry { host: text("other:5000"), ..Default::default() };
    assert_eq!(settings.edge.registries[1], bare);
    let table = [
        (json!([{}]), "edge.registries[0].host: must be given"),
        (
            json!([{"host": "https://r"}]),
            "edge.registries[0].host: must be a host, with a port if it is not 443: no scheme, no path",
        ),
        (
            json!([{"host": "r"}, {"host": "R"}]),
            "edge.registries[1].host: occurs twice; put everything about a host into one item",
        ),
        (
            json!([{"host": "r", "mirrors": ["https://user:word@m"]}]),
            "edge.registries[0].mirrors[0]: must be a URL such as https://mirror.example.org:5000/path, without user and query",
        ),
        (
            json!([{"host": "r", "keyFile": "/k"}]),
            "edge.registries[0].certificateFile: needs keyFile, and keyFile needs certificateFile",
        ),
    ];
    for (registries, expected) in table {
        assert_eq!(errors(&[("edge.registries", registries)]), [expected]);
    }
}

mod checks;
mod documents;
mod foreign;
