use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::super::super::Role;
use super::super::super::tests::input;
use super::super::tests::settings;
use super::*;
use crate::config::control_plane::EtcdVolume;
use crate::kube::{Client, Connection, Options};
use crate::net::testing::{Act, SeenRequest, TestServer};

const NAMESPACE: &str = "shoot--p--s2";

fn volume() -> EtcdVolume {
    EtcdVolume { storage_class: None, size: "25Gi".to_owned() }
}

#[test]
fn jobs_are_as_in_the_golden_files() {
    let volume = volume();
    let input = input(Role::Main, &volume);
    let all = [Store::Directory("/var/lib/snapshots"), Store::Bucket].map(|store| {
        let snapshots = settings(store);
        vec![final_job(&input, &snapshots), copy_job(NAMESPACE, &snapshots, false)]
    });
    assert_eq!(all[0], all[1], "a move always goes through buckets");
    let golden = include_str!("../../../../../../tests/fixtures/components/etcd-plain-moving.yaml");
    assert_eq!(archive::golden(&all[0]), golden);
    let accepted = copy_job(NAMESPACE, &settings(Store::Bucket), true);
    let args = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let mut expected = args(&all[0][1]);
    snapshots::push(&mut expected, json!("--accept-loss"));
    assert_eq!(args(&accepted), expected);
}

/// The objects of a server, by path, and what each `DELETE` asked for.
#[derive(Default)]
struct Objects {
    all: BTreeMap<String, Value>,
    deleted: Vec<String>,
    created: u64,
}

struct Scene {
    objects: Arc<Mutex<Objects>>,
    seed: Seed,
    _server: TestServer,
}

fn answer(objects: &mut Objects, seen: &SeenRequest) -> Vec<Act> {
    let path = seen.path.split('?').next().unwrap().to_owned();
    let missing = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
    let is_list = ["/jobs", "/pods"].iter().any(|end| path.ends_with(end));
    match seen.method.as_str() {
        "POST" => {
            let mut object: Value = serde_json::from_str(&seen.body).unwrap();
            objects.created += 1;
            object["metadata"]["uid"] = json!(format!("uid-{}", objects.created));
            let path = format!("{path}/{}", text(&object["metadata"]["name"]));
            let told = object.to_string();
            objects.all.insert(path, object);
            Act::json(201, &told)
        }
        "GET" if is_list => {
            let items: Vec<&Value> = objects
                .all
                .iter()
                .filter_map(|(key, object)| key.starts_with(&format!("{path}/")).then_some(object))
                .filter(|object| {
                    let app = text(&object["metadata"]["labels"]["app"]);
                    seen.path.contains(&format!("labelSelector=app%3D{app}&"))
                        || seen.path.ends_with(&format!("labelSelector=app%3D{app}"))
                })
                .collect();
            Act::json(200, &json!({"metadata": {}, "items": items}).to_string())
        }
        "DELETE" => {
            let propagation: Value = serde_json::from_str(&seen.body).unwrap_or_default();
            let name = path.rsplit('/').next().unwrap();
            objects.deleted.push(format!("{name} {}", text(&propagation["propagationPolicy"])));
            match objects.all.remove(&path) {
                Some(_) => Act::json(200, "{}"),
                None => Act::json(404, missing),
            }
        }
        "PATCH" => {
            let patch: Value = serde_json::from_str(&seen.body).unwrap();
            let object = objects.all.get_mut(&path).unwrap();
            for (name, value) in patch["data"].as_object().unwrap() {
                object["data"][name.as_str()] = value.clone();
            }
            object["data"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
            Act::json(200, &object.to_string())
        }
        _ => match objects.all.get(&path) {
            Some(object) => Act::json(200, &object.to_string()),
            None => Act::json(404, missing),
        },
    }
}

impl Scene {
    fn new() -> Self {
        let objects = Arc::new(Mutex::new(Objects::default()));
        let shared = Arc::clone(&objects);
        let server = TestServer::plain(move |seen| answer(&mut shared.lock().unwrap(), seen));
        let seed = Seed(Client::new(Connection::new(server.url()), Options::default()).unwrap());
        let scene = Self { objects, seed, _server: server };
        let data = json!({"accessKeyID": "a", "secretAccessKey": "b", "bucketName": "c", "region": "d"});
        scene.put(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), SOURCE_SECRET, &json!({"data": data}));
        scene
    }

    fn put(&self, folder: &str, name: &str, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.objects.lock().unwrap().all.insert(format!("{folder}/{name}"), object);
    }

    fn job(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}");
        change(self.objects.lock().unwrap().all.get_mut(&path).unwrap());
    }

    /// Ends a Job with a condition.
    fn end(&self, name: &str, kind: &str) {
        let condition = json!({"type": kind, "status": "True", "reason": "R", "message": "too late"});
        self.job(name, |job| job["status"] = json!({"conditions": [condition]}));
    }

    /// A pod of the present Job of this name.
    fn pod(&self, job: &str, name: &str, status: &Value) {
        let mut uid = Value::Null;
        self.job(job, |job| uid = job["metadata"]["uid"].clone());
        let metadata = json!({"labels": {"app": job}, "ownerReferences": [{"uid": uid}]});
        let pod = json!({"metadata": metadata, "status": status});
        self.put(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), name, &pod);
    }

    fn take(&self, operation: &str) -> TaskStep {
        let volume = volume();
        take_final(&self.seed, &input(Role::Main, &volume), &settings(Store::Bucket), operation).unwrap()
    }

    fn copy(&self, accepts_loss: bool) -> TaskStep {
        copy(&self.seed, NAMESPACE, &settings(Store::Bucket), accepts_loss, "1").unwrap()
    }

    fn created(&self) -> u64 {
        self.objects.lock().unwrap().created
    }
}

fn why(step: TaskStep) -> String {
    match step {
        TaskStep::Again { why, .. } => why.text,
        TaskStep::Done => "done".to_owned(),
    }
}

fn ended(second: u32, code: i64, message: &Value) -> Value {
    let at = format!("2026-07-01T22:05:{second:02}Z");
    let ended =
        json!({"exitCode": code, "finishedAt": at, "message": message.to_string(), "reason": "Error"});
    json!({"containerStatuses": [{"name": "x", "state": {"terminated": ended}}]})
}

#[test]
fn a_job_belongs_to_one_operation() {
    let scene = Scene::new();
    let (again, replaced) = ("done", format!("Job {NAMESPACE}/{FINAL_JOB} is replaced"));
    assert_eq!(why(scene.take("1")), again);
    // It runs, and has succeeded.
    assert_eq!((why(scene.take("1")), scene.created()), ("done".to_owned(), 1));
    scene.end(FINAL_JOB, "Complete");
    assert_eq!((why(scene.take("1")), scene.created()), ("done".to_owned(), 1));
    // Another operation came.
    assert_eq!(why(scene.take("2")), replaced);
    assert_eq!((why(scene.take("2")), scene.created()), ("done".to_owned(), 2));
    // It failed.
    scene.end(FINAL_JOB, "Failed");
    assert_eq!(why(scene.take("2")), replaced);
    assert_eq!((why(scene.take("2")), scene.created()), ("done".to_owned(), 3));
    scene.job(FINAL_JOB, |job| job["metadata"]["deletionTimestamp"] = json!("2026-07-01T22:05:00Z"));
    assert_eq!(why(scene.take("2")), format!("Job {NAMESPACE}/{FINAL_JOB} is being deleted"));
    // A loss is accepted while the copy waits.
    assert_eq!((why(scene.copy(false)), why(scene.copy(false))), ("done".to_owned(), "done".to_owned()));
    assert_eq!(why(scene.copy(true)), format!("Job {NAMESPACE}/{COPY_JOB} is replaced"));
    assert_eq!(why(scene.copy(true)), "done");
    delete(&scene.seed, NAMESPACE).unwrap();
    delete(&scene.seed, NAMESPACE).unwrap();
    let objects = scene.objects.lock().unwrap();
    assert!(objects.all.keys().all(|path| !path.contains("/jobs/")), "{:?}", objects.all.keys());
    // Otherwise their pods would stay.
    assert!(objects.deleted.iter().all(|deleted| deleted.ends_with(" Background")), "{:?}", objects.deleted);
}

#[test]
fn a_bucket_that_cannot_be_used_is_named() {
    let scene = Scene::new();
    let path = |name: &str| format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
    scene.objects.lock().unwrap().all.get_mut(&path(SOURCE_SECRET)).unwrap()["data"]["region"] = json!("");
    let copy = || copy(&scene.seed, NAMESPACE, &settings(Store::Bucket), false, "1").unwrap_err().text;
    assert!(copy().starts_with(&format!("Secret {NAMESPACE}/{SOURCE_SECRET} has no region: ")), "{}", copy());
    scene.objects.lock().unwrap().all.remove(&path(SOURCE_SECRET));
    assert!(
        copy().starts_with(&format!("Secret {NAMESPACE}/{SOURCE_SECRET} does not exist: ")),
        "{}",
        copy()
    );
    assert_eq!(scene.created(), 0);
}

#[test]
fn a_wait_says_what_the_pods_of_this_job_told() {
    let scene = Scene::new();
    let look = |job: &str| match wait(&scene.seed, NAMESPACE, job) {
        Ok(step) => why(step),
        Err(failed) => format!("failed: {}", failed.text),
    };
    let about = |job: &str, rest: &str| format!("Job {NAMESPACE}/{job} {rest}");
    assert_eq!(look(COPY_JOB), format!("failed: {}", about(COPY_JOB, "does not exist: it was deleted")));
    scene.copy(false);
    assert_eq!(look(COPY_JOB), about(COPY_JOB, "has not ended: it has no pod yet"));
    scene.pod(COPY_JOB, "a", &json!({"phase": "Running"}));
    assert_eq!(look(COPY_JOB), about(COPY_JOB, "has not ended: pod a runs"));
    let waiting = json!({"reason": "ErrImagePull", "message": "no"});
    let status =
        json!({"containerStatuses": [{"name": "copy", "image": "i", "state": {"waiting": waiting}}]});
    scene.pod(COPY_JOB, "a", &status);
    assert!(look(COPY_JOB).contains("container copy of pod a cannot get image i"), "{}", look(COPY_JOB));
    // A refusal, behind an older failure.
    scene.pod(COPY_JOB, "b", &ended(1, 1, &json!({"error": "no answer"})));
    scene.pod(COPY_JOB, "a", &ended(2, 1, &json!({"error": "there is no snapshot", "acceptable": true})));
    let next = "has not ended: a pod failed, and the next one follows: there is no snapshot (exit code 1)";
    assert_eq!(look(COPY_JOB), about(COPY_JOB, next));
    scene.end(COPY_JOB, "Failed");
    let advice = "annotate the Shoot with edge.gardenlet/accept-data-loss=true to accept what is lost";
    let failed = format!("failed: there is no snapshot (exit code 1); {advice}");
    assert_eq!(look(COPY_JOB), format!("failed: {}", about(COPY_JOB, &failed)));
    scene.pod(COPY_JOB, "a", &ended(2, 1, &json!({"error": "denied", "acceptable": false})));
    assert_eq!(look(COPY_JOB), format!("failed: {}", about(COPY_JOB, "failed: denied (exit code 1)")));
    // Pods of a Job with the same name that was replaced do not count.
    assert!(why(scene.copy(false)).ends_with("is replaced"));
    scene.copy(false);
    assert_eq!(look(COPY_JOB), about(COPY_JOB, "has not ended: it has no pod yet"));
    assert_eq!(told(&scene.seed, NAMESPACE, COPY_JOB).unwrap(), None);
    // Without a pod that told anything, its controller knows why.
    scene.end(COPY_JOB, "Failed");
    assert_eq!(look(COPY_JOB), format!("failed: {}", about(COPY_JOB, "failed: R: too late")));
    scene.copy(false);
    scene.copy(false);
    scene.pod(COPY_JOB, "c", &ended(3, 0, &json!({"lost": "much"})));
    scene.end(COPY_JOB, "Complete");
    assert_eq!(look(COPY_JOB), "done");
    assert_eq!(told(&scene.seed, NAMESPACE, COPY_JOB).unwrap(), Some(json!({"lost": "much"})));
}

#[test]
fn nothing_is_written_behind_the_last_snapshot() {
    let scene = Scene::new();
    let labels = json!({"metadata": {"labels": {"app": snapshots::NAME}}});
    let folder = |kind: &str| format!("/apis/batch/v1/namespaces/{NAMESPACE}/{kind}");
    scene.put(&folder("cronjobs"), snapshots::NAME, &labels);
    scene.put(&folder("jobs"), "by-hand", &labels);
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    scene.put(&pods, "by-hand-1", &labels);
    let left = |kind: &str, name: &str| {
        format!("{kind} {NAMESPACE}/{name} of CronJob {} has not ended yet", snapshots::NAME)
    };
    let suspend = || why(suspend(&scene.seed, NAMESPACE).unwrap());
    assert_eq!(suspend(), left("Job", "by-hand"));
    assert_eq!(suspend(), left("Pod", "by-hand-1"));
    scene.objects.lock().unwrap().all.remove(&format!("{pods}/by-hand-1"));
    assert_eq!((suspend(), suspend()), ("done".to_owned(), "done".to_owned()));
    let objects = scene.objects.lock().unwrap();
    assert!(objects.all.keys().all(|path| path.contains("/secrets/")), "{:?}", objects.all.keys());
    assert!(objects.deleted.contains(&"by-hand Background".to_owned()));
}

#[test]
fn a_restored_etcd_starts_empty_or_with_older_data_only_if_that_is_accepted() {
    let scene = Scene::new();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{RESTORE}");
    let found = || scene.objects.lock().unwrap().all.get(&path).map(|map| map["data"].clone());
    let data = |never_empty: &str| json!({NEVER_EMPTY: never_empty, RESULT: "/dev/termination-log"});
    let reaching = |revision: &str| {
        let mut data = data("true");
        data[AT_LEAST] = json!(revision);
        data
    };
    let (stored, earlier) =
        (|revision| FirstData::Stored { copied: Some(revision) }, FirstData::Stored { copied: None });
    let steps = [
        (earlier, data("true")),
        (stored(7), reaching("7")),
        // The agent has started again, and the Job of the copy has gone.
        (earlier, reaching("7")),
        // The backups were copied once more.
        (stored(9), reaching("9")),
        (FirstData::Any, data("false")),
        (earlier, data("true")),
    ];
    for (first, expected) in steps {
        for _ in 0..2 {
            begin_restore(&scene.seed, NAMESPACE, first).unwrap();
            assert_eq!(found().as_ref(), Some(&expected), "{first:?}");
        }
    }
    for _ in 0..2 {
        end_restore(&scene.seed, NAMESPACE).unwrap();
        assert_eq!(found(), None);
    }
}
