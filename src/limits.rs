//! Every maximum of the program, in one place. All input from outside has a limit here. Exceeding it causes an error
//! that names the limit. Names end with their unit.

use std::time::Duration;

/// From the signal to the end of the process, even if a thread hangs.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_millis(1_950);
/// After a stop, the leases are released as soon as all parts have ended, but after this time at the latest.
pub(crate) const PARTS_END_TIME_MAX: Duration = Duration::from_millis(900);
/// How long the release of a lease may take.
pub(crate) const RELEASE_TIME_MAX: Duration = Duration::from_millis(800);
// Both together fit into the stop time.
const _: () =
    assert!(PARTS_END_TIME_MAX.as_millis() + RELEASE_TIME_MAX.as_millis() < STOP_TIME_MAX.as_millis());
const _: () = assert!(STOP_TIME_MAX.as_millis() < 2_000);

/// A message or a value in a log line.
pub(crate) const LOG_VALUE_BYTES_MAX: usize = 8 << 10;
/// Series of one metric family.
pub(crate) const METRIC_SERIES_MAX: usize = 256;

/// The text of one object of the garden or the seed, and any other single answer. API servers accept requests of 3 MiB, and
/// etcd takes 1.5 MiB by default; JSON is longer than what is stored.
pub(crate) const OBJECT_BYTES_MAX: usize = 4 << 20;
/// How much of an answer that nobody needs is read, so that the connection can be used again.
pub(crate) const UNUSED_ANSWER_BYTES_MAX: usize = 16 << 20;
/// A text that needs no permit. See [`LONG_TEXTS_MAX`].
pub(crate) const SHORT_TEXT_BYTES_MAX: usize = 256 << 10;
/// Longer texts that all clients of the garden and the seed read at the same time.
pub(crate) const LONG_TEXTS_MAX: usize = 3;
/// Longer texts that all clients of Shoots read at the same time: each may take as long as a call.
pub(crate) const SHOOT_LONG_TEXTS_MAX: usize = 8;
/// The memory of the values of an object that needs no permit. See [`LARGE_OBJECTS_MAX`].
pub(crate) const SMALL_OBJECT_BYTES_MAX: usize = 512 << 10;
/// A text whose values take less memory than that, whatever it contains.
pub(crate) const SMALL_OBJECT_TEXT_BYTES_MAX: usize = 4 << 10;
/// Larger objects that all clients together decode at the same time.
pub(crate) const LARGE_OBJECTS_MAX: usize = 2;
/// How long a request waits for such a permit.
pub(crate) const LONG_ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// All headers of one response.
pub(crate) const RESPONSE_HEADER_BYTES_MAX: usize = 64 << 10;
/// Name lookups that may wait for the system at the same time.
pub(crate) const LOOKUPS_MAX: usize = 8;
/// Objects in one page of a list.
pub(crate) const LIST_PAGE_ITEMS: usize = 250;
/// One page of a list. It is decoded while it arrives and never held in memory.
pub(crate) const LIST_PAGE_BYTES_MAX: usize = 256 << 20;
/// What a page of a list has beside its objects.
pub(crate) const LIST_REST_BYTES_MAX: usize = 64 << 10;
/// Time for a page of a list, if it is longer than that of other calls.
pub(crate) const LIST_PAGE_TIME_MIN: Duration = Duration::from_secs(120);
/// Pages of one list: the agent refuses a list whose `continue` never ends.
pub(crate) const LIST_PAGES_MAX: usize = 4_000;

/// API versions whose kinds are cached.
pub(crate) const DISCOVERY_VERSIONS_MAX: usize = 256;

/// CAs of a garden that are trusted at the same time during a CA rotation.
pub(crate) const CA_CERTIFICATES_MAX: usize = 32;

/// Depth of YAML and JSON documents.
pub(crate) const NESTING_DEPTH_MAX: usize = 128;
/// Nodes of a YAML document after its aliases are resolved, per byte of its text.
pub(crate) const YAML_ALIAS_NODES_PER_BYTE_MAX: usize = 20;
/// Nodes that the aliases of one YAML document may add to the nodes of its text.
pub(crate) const YAML_ALIAS_NODES_MAX: usize = 400_000;
/// A configuration file or a kubeconfig.
pub(crate) const CONFIG_FILE_BYTES_MAX: usize = 1 << 20;
/// Reported problems of one configuration.
pub(crate) const CONFIG_PROBLEMS_MAX: usize = 200;
/// A file with the CA certificates of the system.
pub(crate) const SYSTEM_CAS_BYTES_MAX: usize = 4 << 20;
/// RSA keys of each length in use that are kept in stock.
pub(crate) const RSA_KEYS_STOCKED: usize = 2;
/// Files that are read from a directory of CA certificates.
pub(crate) const SYSTEM_CA_FILES_MAX: usize = 2_000;
/// Output of an exec plugin.
pub(crate) const EXEC_OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Values of one object that is read alone, including keys.
pub(crate) const OBJECT_NODES_MAX: usize = 60_000;
/// Values of any other answer: that of a write has the object and what the server adds to it.
pub(crate) const ANSWER_NODES_MAX: usize = 2 * OBJECT_NODES_MAX;
/// Values of an object in a list or a watch. Such an object arrives while others are processed, and outside
/// of their memory budgets.
pub(crate) const STREAMED_NODES_MAX: usize = 45_000;

/// Stack of one rendering. Templates that nest deeper fail; the thread that renders has more stack than this.
pub(crate) const TEMPLATE_STACK_BYTES_MAX: usize = 6 << 20;
/// How often a template may include itself, as in Helm.
pub(crate) const TEMPLATE_INCLUDES_MAX: usize = 1_000;
/// Depth of templates within templates, whatever their names.
pub(crate) const TEMPLATE_DEPTH_MAX: usize = 10_000;
/// Tokens of one template, including punctuation.
pub(crate) const TEMPLATE_TOKENS_MAX: usize = 1 << 20;
/// Nesting depth of parentheses.
pub(crate) const TEMPLATE_PARENTHESES_MAX: usize = 1_000;
/// Depth of values that are printed, copied, merged or compared: ends cycles.
pub(crate) const TEMPLATE_VALUE_DEPTH_MAX: usize = 400;
/// Values that one print, copy, merge or comparison visits.
pub(crate) const TEMPLATE_VALUE_NODES_MAX: usize = 1 << 22;
/// Text of one template file, after rendering, and of each string on the way.
pub(crate) const TEMPLATE_OUTPUT_BYTES_MAX: usize = 32 << 20;
/// A buffer for such text that is kept for reuse.
pub(crate) const TEMPLATE_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Items of a list that a function returns.
pub(crate) const TEMPLATE_LIST_ITEMS_MAX: usize = 1 << 20;
/// Actions and calls of one rendered file, and the work of functions. A step is about a microsecond.
pub(crate) const TEMPLATE_STEPS_MAX: u64 = 20_000_000;
/// A file that describes a time zone; the largest of them has 4 kB.
pub(crate) const ZONE_FILE_BYTES_MAX: usize = 1 << 16;
/// Compiled regular expressions that one rendering, or one check against a schema, keeps.
pub(crate) const TEMPLATE_REGEXES_MAX: usize = 128;
/// The text of one regular expression, with the classes of Unicode in it written out.
pub(crate) const TEMPLATE_REGEX_TEXT_BYTES_MAX: usize = 256 << 10;
/// Size of one compiled regular expression.
pub(crate) const TEMPLATE_REGEX_BYTES_MAX: usize = 1 << 20;

/// Objects in one page of a list during the clean-up of a Shoot. The next two limits bound pages and
/// writes in one step.
pub(crate) const CLEANUP_PAGE_ITEMS: u32 = 50;
pub(crate) const CLEANUP_PAGES_MAX: usize = 20;
/// See [`CLEANUP_PAGE_ITEMS`]. The last page may exceed it.
pub(crate) const CLEANUP_WRITES_MAX: usize = 50;
/// Such a name, with the finalizers of the object.
pub(crate) const CLEANUP_NAME_BYTES_MAX: usize = 500;
/// Objects that a message about a clean-up names.
pub(crate) const CLEANUP_NAMES_MAX: usize = 10;
/// Shoots whose API servers keep an idle connection.
pub(crate) const SHOOT_CONNECTIONS_MAX: usize = 16;
/// Total time of a call to the API server of a Shoot.
pub(crate) const SHOOT_TIMEOUT: Duration = Duration::from_secs(5);
/// The text of one object of a Shoot, and any other single answer. etcd takes 1.5 MiB; JSON is longer than what is stored.
pub(crate) const SHOOT_OBJECT_BYTES_MAX: usize = 2 << 20;
/// One page of a list of a Shoot. It is not held in memory.
pub(crate) const SHOOT_PAGE_BYTES_MAX: usize = 32 << 20;
/// All pages of a list of a Shoot: hundreds of large CustomResourceDefinitions.
pub(crate) const SHOOT_LIST_BYTES_MAX: usize = 128 << 20;
/// What a short object counts in it: such a list has at most 32,000 objects.
pub(crate) const SHOOT_LIST_OBJECT_BYTES_MIN: usize = 4 << 10;
/// The same in time.
pub(crate) const SHOOT_LIST_TIME_MAX: Duration = Duration::from_secs(15);
/// The text of a page of a list of a Shoot that is held in memory. If it is longer, fewer objects are requested.
pub(crate) const SHOOT_KEPT_BYTES_MAX: usize = 4 << 20;
/// The values of such a page.
pub(crate) const SHOOT_KEPT_NODES_MAX: usize = 100_000;
/// Objects in such a page, if no other number was requested.
pub(crate) const SHOOT_PAGE_ITEMS: u32 = 100;
/// Names that a check inside a Shoot remembers.
pub(crate) const SHOOT_NAMES_MAX: usize = 100;
/// A name in a message about a Shoot: API servers accept no longer one for most kinds.
pub(crate) const SHOOT_NAME_BYTES_MAX: usize = 253;

/// Nodes of a Shoot that are looked at. Further ones are ignored.
pub(crate) const SHOOT_NODES_MAX: usize = 1_000;

/// Open certificate requests of a Shoot that one look answers, the newest of each user. Further ones wait for the next look.
pub(crate) const SHOOT_REQUESTS_MAX: usize = 200;

/// Older requests of the same user that one look deletes. Looks are two seconds apart, so these are five per second.
pub(crate) const SHOOT_REQUESTS_SUPERSEDED_MAX: usize = 10;

/// The length of a certificate request in a Shoot that is read, in base64. Those of nodes have less than a kilobyte.
pub(crate) const SHOOT_REQUEST_BYTES_MAX: usize = 16 << 10;

/// Objects of a kind in a Shoot that one list may find to be well. Further ones are read one by one.
pub(crate) const SHOOT_SURVEY_OBJECTS_MAX: usize = 1_000;

/// The length of what a node of a Shoot says about itself.
pub(crate) const SHOOT_NODE_BYTES_MAX: usize = 512;

/// The length of the version that a node of a Shoot says it has.
pub(crate) const SHOOT_NODE_VERSION_BYTES_MAX: usize = 64;
/// Changes of webhooks that one check of a Shoot makes, as JSON. The next check continues.
pub(crate) const SHOOT_REMEDIES_BYTES_MAX: usize = 256 << 10;
/// Names and UIDs of stale pods that are deleted at once. The next check continues.
pub(crate) const STALE_PODS_BYTES_MAX: usize = 1 << 20;
/// Time for discovery at the API server of a Shoot: its owner's API services may be slow.
pub(crate) const SHOOT_DISCOVERY_TIME_MAX: Duration = Duration::from_secs(30);
/// The list of API groups of a Shoot, or of the resources of one API version.
pub(crate) const SHOOT_DISCOVERY_BYTES_MAX: usize = 1 << 20;
/// Resources of a Shoot that its viewers may see. Their names must fit into one ClusterRole.
pub(crate) const SHOOT_RESOURCES_MAX: usize = 5_000;
/// The name of such a resource: a DNS label, as API servers require it for a CustomResourceDefinition.
pub(crate) const SHOOT_RESOURCE_NAME_BYTES_MAX: usize = 63;
/// Objects of a Shoot that are rewritten in one second, for a new encryption key or new tokens.
pub(crate) const REWRITES_PER_SECOND: usize = 100;
/// Objects in one page of a list of objects to rewrite.
pub(crate) const REWRITE_PAGE_ITEMS: u32 = 250;
/// Objects that an error names because they could not be rewritten; the others are counted.
pub(crate) const REWRITE_REFUSED_NAMED_MAX: usize = 5;
/// Delay before a key is retried after the fence refused a write because the lease was not valid.
pub(crate) const FENCED_AGAIN: Duration = Duration::from_secs(1);
/// How long a worker waits for a free slot when the maximum number of requests to the same server is in flight.
pub(crate) const PERMIT_WAIT_MAX: Duration = Duration::from_millis(200);
/// Delay before a key is retried if no slot became free.
pub(crate) const PERMIT_AGAIN: Duration = Duration::from_secs(1);
/// How long a worker waits until a server begins to answer a read.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// An unanswered request that waited less than this time is no evidence against its server.
pub(crate) const SILENCE_MIN: Duration = Duration::from_secs(3);
/// Initial backoff after a server was unreachable; it doubles up to the maximum.
pub(crate) const OUTAGE_PROBE_MIN: Duration = Duration::from_millis(250);
/// The longest interval between two requests that probe an unreachable server.
pub(crate) const OUTAGE_PROBE_MAX: Duration = Duration::from_secs(10);
/// A ShootState. etcd accepts 1.5 MiB at once, and the garden may store it encrypted.
pub(crate) const SHOOT_STATE_BYTES_MAX: usize = 5 << 18;
/// The machines of a Shoot before they are compressed for its ShootState.
pub(crate) const MACHINE_STATE_BYTES_MAX: usize = 16 << 20;
/// Failed keys of one controller whose errors are remembered for the status page.
pub(crate) const FAILED_KEYS_MAX: usize = 32;
/// The text of such an error.
pub(crate) const FAILED_TEXT_BYTES_MAX: usize = 512;
/// Rows of one kind of object on the status page.
pub(crate) const STATUS_ROWS_MAX: usize = 200;
/// Problems on the status page.
pub(crate) const STATUS_PROBLEMS_MAX: usize = 100;
/// A status page that `gardenlet status` reads.
pub(crate) const STATUS_PAGE_BYTES_MAX: usize = 4 << 20;
/// Keys in one work queue.
pub(crate) const QUEUE_KEYS_MAX: usize = 50_000;
/// Objects in one store.
pub(crate) const STORE_OBJECTS_MAX: usize = 100_000;
/// Recent Events that are kept, so that a repeated Event increases its count.
pub(crate) const EVENTS_MAX: usize = 256;
/// Threads of the agent.
pub const THREADS_MAX: usize = 64;
/// Watches of an agent without Shoots.
pub const WATCHES_MAX: usize = 24;
/// NetworkPolicies in one namespace that Services request.
pub(crate) const NETWORK_POLICIES_MAX: usize = 10_000;
/// The longest configurable interval between two renewals of the seed's Lease, for slow links: the garden considers a
/// seed lost after 40 s without a renewal.
pub const HEARTBEAT_INTERVAL_S_MAX: u64 = 10;
/// The longest `leaseResyncSeconds`: the second renewal comes before the garden considers the seed lost (40 s).
pub(crate) const LEASE_RESYNC_S_MAX: i64 = 19;

/// Stack of a thread that runs controllers: YAML and JSON as deep as [`NESTING_DEPTH_MAX`]. Unused
/// stack takes no memory.
pub const WORKER_STACK_BYTES: usize = 2 << 20;
/// Stack of a thread that follows a watch: JSON of one object.
pub const WATCH_STACK_BYTES: usize = 512 << 10;
/// Stack of a thread that only waits and forwards, TLS included.
pub(crate) const SMALL_STACK_BYTES: usize = 256 << 10;

/// Connections to the HTTP server for probes and metrics.
pub(crate) const SERVE_CONNECTIONS_MAX: usize = 16;
/// How many of these connections may send responses other than probes at the same time.
pub(crate) const SERVE_PAGES_MAX: usize = 12;
const _: () = assert!(SERVE_PAGES_MAX < SERVE_CONNECTIONS_MAX);
/// The head of a request to the HTTP server.
pub(crate) const SERVE_REQUEST_BYTES_MAX: usize = 8 << 10;
/// Stack of a thread that answers one request.
pub(crate) const SERVE_STACK_BYTES: usize = 128 << 10;

/// One file of the state directory.
pub(crate) const STATE_FILE_BYTES_MAX: u64 = 1 << 20;
/// Documents of one ManagedResource, including broken ones.
pub(crate) const MANAGED_RESOURCE_OBJECTS_MAX: usize = 2_000;
/// Manifests of one ManagedResource, unpacked.
pub(crate) const MANAGED_RESOURCE_TEXT_BYTES_MAX: usize = 8 << 20;
/// The text of one of its documents: no API server accepts a larger request.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 3 << 20;
/// Values of one of its documents, including keys. An alias counts as its target; each 128 bytes of text
/// count as one value.
pub(crate) const DOCUMENT_NODES_MAX: usize = 60_000;
/// Secrets that one ManagedResource may name.
pub(crate) const MANAGED_RESOURCE_SECRETS_MAX: usize = 500;
/// Keys of a Secret with manifests.
pub(crate) const SECRET_KEYS_MAX: usize = 5_000;
/// The list of objects in the status of a ManagedResource: it has to fit into etcd.
pub(crate) const MANAGED_RESOURCE_STATUS_BYTES_MAX: usize = 1 << 20;
/// Problems that a condition names; the others are counted.
pub(crate) const MANAGED_RESOURCE_PROBLEMS_MAX: usize = 5;
/// Window of a compressed key of a Secret. Upstream's writer uses 4 MiB.
pub(crate) const BROTLI_WINDOW_BYTES_MAX: usize = 8 << 20;
/// Values in the status of a ManagedResource for its objects. The agent must be able to read the status again.
pub(crate) const MANAGED_RESOURCE_STATUS_NODES_MAX: usize = 40_000;
/// Values of a ManagedResource itself, including its managed fields.
pub(crate) const MANAGED_RESOURCE_NODES_MAX: usize = 50_000;
/// Values of a ManagedResource in a list or a watch, without `status.resources`.
pub(crate) const MANAGED_RESOURCE_STREAMED_NODES_MAX: usize = 12_000;
/// Memory of a ManagedResource itself, without its manifests. Writing its status takes three times as much.
pub(crate) const MANAGED_RESOURCE_BYTES_MAX: usize = 6 << 20;
/// Text of one such problem.
pub(crate) const PROBLEM_BYTES_MAX: usize = 300;
/// The message of a condition of a ManagedResource.
pub(crate) const CONDITION_MESSAGE_BYTES_MAX: usize = 2 << 10;
/// Memory for applying one ManagedResource while no other is applied.
pub(crate) const APPLIER_MEMORY_BYTES_MAX: usize = 24 << 20;
/// Memory for applying several at the same time.
pub(crate) const APPLIER_SHARED_BYTES_MAX: usize = 14 << 20;
/// Memory for reading one Secret: its text, its values, and one of them decoded.
pub(crate) const APPLIER_READ_BYTES: usize = 4 << 20;
/// Applied objects that the applier remembers as unchanged, so that it skips the write: 48 bytes each.
pub(crate) const SETTLED_OBJECTS_MAX: usize = 20_000;

/// A chart with all its sub-charts, unpacked (Helm's limit).
pub(crate) const CHART_BYTES_MAX: usize = 100 << 20;
/// The longest `Retry-After` that the agent respects.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// One file of a chart (Helm's limit).
pub(crate) const CHART_FILE_BYTES_MAX: usize = 5 << 20;
/// Files of a chart with all its sub-charts.
pub(crate) const CHART_FILES_MAX: usize = 20_000;
/// The path of a file of a chart.
pub(crate) const CHART_NAME_BYTES_MAX: usize = 1_024;
pub(crate) const CHART_DEPTH_MAX: usize = 16;
/// Charts of one rendering: a dependency with several aliases counts once for each.
pub(crate) const CHART_COUNT_MAX: usize = 1_000;
/// Steps of the path in a parent chart to which values of a sub-chart are imported.
pub(crate) const CHART_IMPORT_STEPS_MAX: usize = 30;
/// A `.helmignore`.
pub(crate) const CHART_IGNORE_BYTES_MAX: usize = 64 << 10;
/// The index of a list in `--set` (Helm's limit).
pub(crate) const SET_INDEX_MAX: usize = 65_536;
/// Steps of one path in `--set` (Helm's limit).
pub(crate) const SET_PATH_STEPS_MAX: usize = 30;
/// Steps of the validation of one chart's values against its schema. A step is about a microsecond.
pub(crate) const SCHEMA_STEPS_MAX: usize = 2_000_000;
/// Nesting depth of schemas, including references.
pub(crate) const SCHEMA_DEPTH_MAX: usize = 128;
/// A packed chart for rendering.
pub(crate) const CHART_ARCHIVE_BYTES_MAX: usize = 32 << 20;
/// The input of a rendering as JSON: name, values and so on.
pub(crate) const RENDER_REQUEST_BYTES_MAX: usize = 16 << 20;
/// The data of a Secret (Kubernetes `MaxSecretSize`).
pub(crate) const SECRET_DATA_BYTES_MAX: usize = 1 << 20;
/// Objects of one rendering, as JSON. A Secret holds 1 MiB of them as YAML; its text may be shorter than the JSON.
pub(crate) const RENDER_OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The same objects as YAML. The exact limit of a Secret applies later, when workloads have their environment.
pub(crate) const RENDER_MANIFESTS_BYTES_MAX: usize = 4 << 20;
/// Memory that the objects of one rendering may take in the agent.
pub(crate) const RENDER_VALUES_BYTES_MAX: usize = 16 << 20;
/// Depth of the objects of one rendering: the agent's JSON reader allows 128 levels, the answer around them included.
pub(crate) const RENDER_DEPTH_MAX: usize = 124;
/// Containers of one pod: the agent adds environment variables to each.
pub(crate) const RENDER_CONTAINERS_MAX: usize = 1_000;
/// The error message of a failed rendering: it becomes part of a condition.
pub(crate) const RENDER_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Concurrent renderings. Together with the agent they fit into 256 MiB, the limit of the systemd unit
/// and of the chart.
pub(crate) const RENDERINGS_MAX: usize = 2;
/// Memory of the process that renders: heap and stacks.
pub(crate) const RENDER_MEMORY_BYTES_MAX: u64 = 96 << 20;
/// Address space of the process that renders, including its program and reservations.
pub(crate) const RENDER_ADDRESS_BYTES_MAX: u64 = 256 << 20;
/// Processor time of the process that renders: a chart may generate RSA keys on a slow machine.
pub(crate) const RENDER_CPU_S_MAX: u64 = 120;
/// Run time of the process that renders.
pub(crate) const RENDER_S_MAX: u64 = 180;
/// From the signal that the processor time is used up to the end of the process.
pub(crate) const RENDER_CPU_GRACE_S: u64 = 5;
/// Stack of the thread that renders: templates may be recursive.
pub const RENDER_STACK_BYTES: usize = 8 << 20;

/// A manifest or an index of a registry (the size that the OCI specification asks registries to accept).
pub(crate) const OCI_MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Nested indexes before the manifest of a chart.
pub(crate) const OCI_INDEX_DEPTH_MAX: usize = 2;
/// Layers of a bundled chart.
pub(crate) const OCI_LAYERS_MAX: usize = 64;
/// Charts of a bundle.
pub(crate) const BUNDLE_CHARTS_MAX: usize = 2_000;
/// Files of a bundle: each chart has a handful.
pub(crate) const BUNDLE_FILES_MAX: usize = 20_000;
/// All files of a bundle together: charts are small, but an archive can expand to a thousand times its size.
pub(crate) const BUNDLE_BYTES_MAX: u64 = 4 << 30;
/// The list of a bundle's images.
pub(crate) const BUNDLE_IMAGES_BYTES_MAX: usize = 4 << 20;
/// The answer of a token service.
pub(crate) const OCI_TOKEN_ANSWER_BYTES_MAX: usize = 256 << 10;
/// A token: it must fit into one header line.
pub(crate) const OCI_TOKEN_BYTES_MAX: usize = 12 << 10;
/// How much of a registry's error is read.
pub(crate) const OCI_ERROR_BYTES_MAX: usize = 16 << 10;
/// Redirects that one request follows.
pub(crate) const OCI_REDIRECTS_MAX: usize = 5;
/// Attempts of one request, and of one download, within one pull.
pub(crate) const OCI_ATTEMPTS_MAX: u32 = 4;
/// Concurrent pulls of charts: each takes a thread of the pool, which others need too.
pub(crate) const OCI_PULLS_MAX: usize = 2;
/// Time of one pull; the next one continues with the part that has arrived.
pub(crate) const OCI_PULL_S_MAX: u64 = 300;
/// A file with certificates or a key for a registry.
pub(crate) const OCI_PEM_BYTES_MAX: usize = 1 << 20;
/// Charts that are cached in memory if there is no state directory.
pub(crate) const CHART_CACHE_MEMORY_BYTES_MAX: usize = 2 << 20;

/// A file that overrides images.
pub(crate) const IMAGE_VECTOR_BYTES_MAX: u64 = 1 << 20;
/// Pods of one workload, and Events of one object, that are read to explain why it is not ready.
pub(crate) const ROLLOUT_OBJECTS_MAX: u32 = 50;
/// Last lines of a container's log that an error includes.
pub(crate) const ROLLOUT_LOG_LINES: usize = 10;
/// The same lines in bytes.
pub(crate) const ROLLOUT_LOG_BYTES_MAX: usize = 2 << 10;

/// A small answer of etcd or of a snapshot store.
pub(crate) const SNAPSHOT_ANSWER_BYTES_MAX: usize = 64 << 10;
/// A line of etcd's stream: 32 KiB of the database, in base64.
pub(crate) const SNAPSHOT_LINE_BYTES_MAX: usize = 1 << 20;
/// The least size that S3 accepts for a part of an upload, except the last one. A part is held in memory.
pub(crate) const SNAPSHOT_PART_BYTES: usize = 5 << 20;
/// One page of the list of a bucket: at most 1000 names of at most 1024 bytes.
pub(crate) const SNAPSHOT_LIST_BYTES_MAX: usize = 4 << 20;
/// Pages of such a list. More pages mean a wrong prefix: no seed keeps so many snapshots.
pub(crate) const SNAPSHOT_LIST_PAGES_MAX: usize = 50;
/// The least speed of a store: about that of a modem.
pub(crate) const SNAPSHOT_BYTES_PER_SECOND_MIN: u64 = 4 << 10;
/// Attempts of one request to a bucket, and of a download that makes no progress.
pub(crate) const SNAPSHOT_ATTEMPTS_MAX: u32 = 4;
/// A file of the Secret with the credentials of a bucket.
pub(crate) const SNAPSHOT_CREDENTIAL_BYTES_MAX: usize = 256 << 10;
pub(crate) const ETCD_CONFIG_BYTES_MAX: usize = 256 << 10;
/// A delta snapshot, unpacked. It lies on the disk; etcd-backup-restore writes one as soon as it holds 100 MiB of events.
pub(crate) const SNAPSHOT_DELTA_BYTES_MAX: u64 = 4 << 30;
/// One event of a delta snapshot. etcd takes 1.5 MiB by default, and etcd-backup-restore restores 10 MiB; base64 is longer.
pub(crate) const SNAPSHOT_EVENT_BYTES_MAX: usize = 14 << 20;
/// The events of one revision, which are held in memory and applied at once.
pub(crate) const SNAPSHOT_REVISION_BYTES_MAX: usize = 28 << 20;
/// The number of these events. The end of a lease deletes all of its keys at once: a kube-apiserver gives it 1000.
pub(crate) const SNAPSHOT_REVISION_EVENTS_MAX: usize = 10_240;
/// The list of an etcd's leases. A kube-apiserver has one lease for itself, and one for the events of each minute.
pub(crate) const ETCD_LEASES_BYTES_MAX: usize = 1 << 20;
/// The database of an etcd: etcd's documentation recommends at most 8 GiB.
pub(crate) const ETCD_DATABASE_BYTES_MAX: u64 = 64 << 30;
