use super::*;
use crate::base::random;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gardenlet-bundle-{}", random::hex(12)));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn bundle(&self, name: &str) -> Bundle {
        Bundle::at(self.0.join(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn manifest_of(chart: &[u8]) -> Vec<u8> {
    let kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let part = |kind: &str, content: &[u8]| json!({"mediaType": kind, "digest": Digest::of(content).to_string(), "size": content.len()});
    json!({"schemaVersion": 2, "config": part("x", b"{}"), "layers": [part(kind, chart)]})
        .to_string()
        .into_bytes()
}

/// Adds a chart's blobs; returns the digest of its manifest.
fn put(bundle: &Bundle, chart: &[u8]) -> Digest {
    let (cache, _lock) = bundle.open().unwrap();
    let manifest = manifest_of(chart);
    for content in [&manifest, chart, b"{}"] {
        cache.put(Digest::of(content), content);
    }
    Digest::of(&manifest)
}

fn known(charts: &[(&str, Digest)]) -> BundleCharts {
    charts.iter().map(|(name, digest)| ((*name).to_owned(), *digest)).collect()
}

fn listed(images: &[&str]) -> BundleImages {
    images.iter().map(|image| (*image).to_owned()).collect()
}

fn charts_of(bundle: &Bundle) -> BundleCharts {
    BundleContents::read(bundle.directory()).unwrap().charts
}

/// A bundle with one chart.
fn small(scratch: &Scratch) -> (Bundle, Digest) {
    let bundle = scratch.bundle("small");
    let digest = put(&bundle, b"chart");
    bundle.publish(&known(&[("r.example.org/a/b:1", digest)]), &listed(&["i:2", "i:1"])).unwrap();
    (bundle, digest)
}

#[test]
fn published_charts_are_added_to_existing_ones() {
    let scratch = Scratch::new();
    let (bundle, first) = small(&scratch);
    let second = put(&bundle, b"another chart");
    let both = known(&[("r.example.org/a/b:1", first), ("r.example.org/a/c:1", second)]);
    let index = bundle.publish(&known(&[("r.example.org/a/c:1", second)]), &listed(&["i:3"])).unwrap();
    assert_eq!(charts_of(&bundle), both);
    assert_eq!(bundle.images().unwrap(), listed(&["i:1", "i:2", "i:3"]));
    assert_eq!(fs::read_to_string(bundle.directory().join("images.txt")).unwrap(), "i:1\ni:2\ni:3\n");
    assert_eq!(bundle.verify("x", first).unwrap().len(), 3);
    // Publishing the same charts again changes no byte.
    assert_eq!(bundle.publish(&both, &BundleImages::new()).unwrap(), index);
    // A tag that moves.
    let moved = bundle.publish(&known(&[("r.example.org/a/b:1", second)]), &BundleImages::new()).unwrap();
    assert!(moved != index && charts_of(&bundle)[0] == ("r.example.org/a/b:1".to_owned(), second));
}

#[test]
fn a_bundle_travels_in_every_form() {
    let scratch = Scratch::new();
    let (bundle, digest) = small(&scratch);
    let blobs = bundle.verify("x", digest).unwrap();
    let index = Digest::of(&fs::read(bundle.directory().join("index.json")).unwrap());
    let mut forms = vec![bundle.directory().to_owned()];
    for name in ["b.tar", "b.tar.gz", "b.tgz"] {
        pack(&bundle, &blobs, &scratch.path(name)).unwrap();
        forms.push(scratch.path(name));
    }
    for (number, form) in forms.iter().enumerate() {
        let target = scratch.bundle(&format!("target-{number}"));
        let contents = target.import(form, Some(index)).unwrap();
        assert_eq!((contents.charts.len(), contents.images), (1, listed(&["i:1", "i:2"])), "{form:?}");
        assert_eq!(target.verify("x", digest).unwrap(), blobs, "{form:?}");
        assert_eq!(target.import(form, None).unwrap().charts, charts_of(&target));
    }
    pack(&bundle, &blobs, &scratch.path("again.tar")).unwrap();
    let read = |name| fs::read(scratch.path(name)).unwrap();
    assert!(read("b.tar") == read("again.tar"), "an archive depends on its content alone");
}

#[test]
fn a_damaged_bundle_is_refused_and_adds_nothing() {
    let scratch = Scratch::new();
    let (bundle, digest) = small(&scratch);
    let blob = |content: &[u8]| bundle.directory().join("blobs/sha256").join(Digest::of(content).hex());
    let index = bundle.directory().join("index.json");
    let right = fs::read(&index).unwrap();
    let other = Digest::of(b"other");
    let manifest = manifest_of(b"chart");
    let table: [(PathBuf, &[u8], &[u8], String); 6] = [
        (blob(b"chart"), b"chart", b"chars", format!("its content has digest {}", Digest::of(b"chars"))),
        (blob(b"chart"), b"chart", b"chart and more", "it has 14 bytes, and 5 are announced".to_owned()),
        (blob(&manifest), &manifest, b"{}", "its content has digest".to_owned()),
        (index.clone(), &right, b"{\"manifests\":[{}]}", "an entry has no digest".to_owned()),
        (index.clone(), &right, b"[]", "it is not the index of an OCI image layout".to_owned()),
        (
            index.clone(),
            &right,
            &String::from_utf8_lossy(&right).replace(&digest.hex(), &other.hex()).into_bytes(),
            format!("blob {other} is missing"),
        ),
    ];
    for (number, (path, content, wrong, why)) in table.into_iter().enumerate() {
        fs::write(&path, wrong).unwrap();
        let archive = scratch.path("b.tar");
        pack(&bundle, &[(digest, 0), (Digest::of(b"chart"), 0), (Digest::of(b"{}"), 0)].into(), &archive)
            .unwrap();
        fs::write(&path, wrong).unwrap();
        for form in [bundle.directory(), &archive] {
            let target = scratch.bundle(&format!("target-{number}"));
            let text = target.import(form, None).unwrap_err().to_string();
            assert!(
                text.contains(&why) && (text.ends_with(READ_AGAIN) || text.ends_with(NO_BUNDLE)),
                "{text}"
            );
            assert!(!target.directory().join(INDEX).exists(), "{why}: it is known all the same");
            // The same target accepts the right file.
            fs::write(&path, content).unwrap();
            target.import(bundle.directory(), None).unwrap();
            fs::remove_dir_all(target.directory()).unwrap();
            fs::write(&path, wrong).unwrap();
        }
        fs::write(&path, content).unwrap();
    }
    let target = scratch.bundle("pinned");
    let text = target.import(bundle.directory(), Some(other)).unwrap_err().to_string();
    assert!(text.contains(&format!("not {other}")) && !target.directory().exists(), "{text}");
    fs::remove_file(blob(b"{}")).unwrap();
    let text = target.import(bundle.directory(), None).unwrap_err().to_string();
    assert!(text.contains(&format!("blob {} is missing", Digest::of(b"{}"))), "{text}");
}

#[test]
fn an_interrupted_import_resumes_under_a_lock() {
    let scratch = Scratch::new();
    let (bundle, digest) = small(&scratch);
    let target = scratch.bundle("target");
    let (cache, lock) = target.open().unwrap();
    let busy = target.import(bundle.directory(), None).unwrap_err().to_string();
    assert!(busy.ends_with("wait until the other program has ended, or name another directory"), "{busy}");
    drop((cache, lock));
    // Leftovers of an earlier run: a whole blob, a damaged one, a part.
    let folder = target.directory().join("blobs/sha256");
    fs::write(folder.join(Digest::of(b"{}").hex()), "{}").unwrap();
    fs::write(folder.join(Digest::of(b"chart").hex()), "ch").unwrap();
    fs::write(folder.join(format!("{}.part", digest.hex())), "x").unwrap();
    target.import(bundle.directory(), None).unwrap();
    assert_eq!(target.verify("x", digest).unwrap().len(), 3);
}

#[test]
fn paths_of_archives_are_names_only() {
    for name in ["blobs/sha256/../../x", "blobs/sha256/", "/etc/passwd", "index.json"] {
        assert_eq!(blob(name), None, "{name}");
    }
    let hex = Digest::of(b"x").hex();
    assert_eq!(blob(&format!("blobs/sha256/{hex}")), Some(Digest::of(b"x")));
}

/// An archive of a bundle and of further files.
fn archive_of(bundle: &Bundle, more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len().try_into().unwrap());
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content).unwrap();
    };
    more.iter().for_each(|(name, content)| add(name, content));
    for entry in fs::read_dir(bundle.directory().join("blobs/sha256")).unwrap().flatten() {
        let name = format!("blobs/sha256/{}", entry.file_name().to_str().unwrap());
        add(&name, &fs::read(entry.path()).unwrap());
    }
    for name in [INDEX, IMAGES] {
        add(name, &fs::read(bundle.directory().join(name)).unwrap());
    }
    builder.into_inner().unwrap()
}

fn blobs_of(bundle: &Bundle) -> usize {
    fs::read_dir(bundle.directory().join("blobs/sha256")).unwrap().count()
}

#[test]
fn only_what_the_index_leads_to_is_written() {
    let scratch = Scratch::new();
    let (bundle, digest) = small(&scratch);
    let ballast = vec![0; 1 << 20];
    let ballast_name = format!("blobs/sha256/{}", Digest::of(&ballast).hex());
    fs::write(scratch.path("b.tar"), archive_of(&bundle, &[(&ballast_name, &ballast)])).unwrap();
    fs::write(bundle.directory().join(&ballast_name), &ballast).unwrap();
    for (number, form) in [scratch.path("b.tar"), bundle.directory().to_owned()].iter().enumerate() {
        let target = scratch.bundle(&format!("target-{number}"));
        target.import(form, None).unwrap();
        assert_eq!((blobs_of(&target), target.verify("x", digest).unwrap().len()), (3, 3), "{form:?}");
    }
}

#[test]
fn no_more_is_read_than_was_announced() {
    let scratch = Scratch::new();
    let (bundle, _) = small(&scratch);
    let chart = bundle.directory().join(blob_path(&Digest::of(b"chart")));
    fs::remove_file(&chart).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &chart).unwrap();
    let text = scratch.bundle("endless").import(bundle.directory(), None).unwrap_err().to_string();
    assert!(text.contains("it is not a regular file"), "{text}");
    fs::remove_file(&chart).unwrap();
    fs::write(&chart, vec![0; 1 << 20]).unwrap();
    let target = scratch.bundle("large");
    let text = target.import(bundle.directory(), None).unwrap_err().to_string();
    assert!(text.contains("it has 1048576 bytes, and 5 are announced"), "{text}");
    assert!(!target.directory().join(blob_path(&Digest::of(b"chart"))).exists());
}

#[test]
fn charts_that_announce_too_much_are_refused_before_they_are_written() {
    let scratch = Scratch::new();
    let bundle = scratch.bundle("large");
    let (cache, lock) = bundle.open().unwrap();
    let kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let mut charts = BundleCharts::new();
    for n in 0..200_u32 {
        let part = |of: String| json!({"mediaType": kind, "digest": Digest::of(of.as_bytes()).to_string(), "size": 32 << 20});
        let manifest =
            json!({"schemaVersion": 2, "config": part(format!("c{n}")), "layers": [part(format!("l{n}"))]});
        let manifest = manifest.to_string().into_bytes();
        cache.put(Digest::of(&manifest), &manifest);
        charts.push((format!("r.example.org/x:{n}"), Digest::of(&manifest)));
    }
    drop((cache, lock));
    bundle.publish(&charts, &BundleImages::new()).unwrap();
    let text = scratch.bundle("target").import(bundle.directory(), None).unwrap_err().to_string();
    assert!(text.contains("its charts take more than 4294967296 bytes"), "{text}");
}

#[test]
fn links_that_somebody_has_put_into_the_destination_are_not_followed() {
    use std::os::unix::fs::symlink;
    let scratch = Scratch::new();
    let (bundle, digest) = small(&scratch);
    let victim = scratch.path("victim");
    fs::write(&victim, "precious").unwrap();
    let target = scratch.bundle("target");
    let folder = target.directory().join("blobs/sha256");
    fs::create_dir_all(&folder).unwrap();
    let chart = Digest::of(b"chart").hex();
    symlink(&victim, folder.join(format!("{}.part", digest.hex()))).unwrap();
    fs::hard_link(&victim, folder.join(format!("{chart}.part"))).unwrap();
    symlink("/dev/zero", folder.join(Digest::of(b"{}").hex())).unwrap();
    for name in
        ["index.json", "images.txt", "oci-layout", "index.json.new", "images.txt.new", "oci-layout.new"]
    {
        symlink(
            if name.ends_with("new") { &victim } else { Path::new("nowhere") },
            target.directory().join(name),
        )
        .unwrap();
    }
    // An index that is a link is refused, and replaced once the link is gone.
    assert!(target.import(bundle.directory(), None).is_err());
    for name in ["index.json", "images.txt"] {
        fs::remove_file(target.directory().join(name)).unwrap();
    }
    target.import(bundle.directory(), None).unwrap();
    assert_eq!(target.verify("x", digest).unwrap().len(), 3);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!fs::symlink_metadata(target.directory().join("oci-layout")).unwrap().is_symlink());
    // So is a directory that is a link.
    let (elsewhere, led) = (scratch.path("elsewhere"), scratch.bundle("led"));
    fs::create_dir_all(elsewhere.join("sha256")).unwrap();
    fs::create_dir_all(led.directory()).unwrap();
    symlink(&elsewhere, led.directory().join("blobs")).unwrap();
    let text = led.import(bundle.directory(), None).unwrap_err().to_string();
    assert!(text.contains("blobs is a link, not a folder"), "{text}");
    assert_eq!(fs::read_dir(elsewhere.join("sha256")).unwrap().count(), 0);
}
