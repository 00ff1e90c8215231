//! The answers were recorded from a real server, versitygw v1.8.0.

use super::*;

const BUCKET: &str = "backups";
const PREFIX: &str = "shoot--p--s1--uid/etcd-main/v2/";
const NONE: &str = include_str!("../../../../tests/fixtures/s3/objects-none.xml");
const ALL: &str = include_str!("../../../../tests/fixtures/s3/objects.xml");
const FIRST: &str = include_str!("../../../../tests/fixtures/s3/objects-first.xml");
const LAST: &str = include_str!("../../../../tests/fixtures/s3/objects-last.xml");
const UPLOADS: &str = include_str!("../../../../tests/fixtures/s3/uploads.xml");
const REFUSAL: &str = include_str!("../../../../tests/fixtures/s3/error.xml");

type Objects = Result<Page<(String, u64)>, &'static str>;

fn asked(from: &str) -> ListRequest<'_> {
    ListRequest { bucket: BUCKET, prefix: PREFIX, from }
}

/// The real answers, each with the token that was sent.
fn real() -> Vec<(&'static str, String)> {
    let token = objects(FIRST, asked("")).unwrap().next.remove(0).1;
    vec![(NONE, String::new()), (ALL, String::new()), (FIRST, String::new()), (LAST, token)]
}

fn names(revisions: &[u64]) -> Vec<(String, u64)> {
    let name = |revision: &u64| (format!("Full-00000000-{revision:08}-{revision}.gz"), *revision);
    revisions.iter().map(name).collect()
}

#[test]
fn answers_of_a_real_server_are_read() {
    let read: Vec<_> = real().iter().map(|(text, from)| objects(text, asked(from)).unwrap()).collect();
    let [none, all, first, last] = &read[..] else { panic!("{read:?}") };
    assert_eq!((none.entries.len(), none.next.len()), (0, 0));
    assert_eq!((&all.entries, all.next.len()), (&names(&[7, 12, 30]), 0));
    assert_eq!((&first.entries, first.next.len()), (&names(&[7, 12]), 1));
    assert_eq!((&last.entries, last.next.len()), (&names(&[30]), 0));
    let uploads = uploads(UPLOADS, asked("")).unwrap();
    let [upload] = &uploads.entries[..] else { panic!("{uploads:?}") };
    assert!(upload.key == format!("{PREFIX}{}", names(&[40])[0].0) && !upload.id.is_empty(), "{upload:?}");
    assert!(upload.begun.unix() > 1_700_000_000 && uploads.next.is_empty(), "{uploads:?}");
}

/// Whether an answer that has lost something may count: it has as many entries as before, and ends or continues as before.
fn is_harmless(found: &Objects, whole: &Objects) -> bool {
    let shape = |page: &Objects| page.as_ref().ok().map(|page| (page.entries.len(), page.next.len()));
    found.is_err() || shape(found) == shape(whole)
}

#[test]
fn no_part_of_an_answer_can_get_lost_unnoticed() {
    for (text, from) in real() {
        let read = |text: &str| objects(text, asked(&from));
        let whole = read(text);
        for end in (0..text.trim_end().len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(read(&text[..end]).is_err(), "cut at {end}: {}", &text[..end]);
        }
        // Ranges of these lengths, from each place.
        let lengths = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987];
        for length in lengths {
            for begin in 0..text.len().saturating_sub(length) {
                let lacks = [&text[..begin], &text[begin + length..]].concat();
                let found = read(&lacks);
                assert!(is_harmless(&found, &whole), "{begin}, {length}: {found:?} from {lacks}");
            }
        }
    }
}

/// XML of an element.
fn written(element: &Element) -> String {
    let children: String = element.children.iter().map(written).collect();
    format!("<{0}>{1}{children}</{0}>", element.name, xml::escape(&element.text))
}

/// The element with each change of one child, at any depth.
fn changed(element: &Element, change: &dyn Fn(&mut Vec<Element>, usize)) -> Vec<Element> {
    let mut all = Vec::new();
    for (at, child) in element.children.iter().enumerate() {
        let mut outer = element.clone();
        change(&mut outer.children, at);
        all.push(outer);
        all.extend(changed(child, change).into_iter().map(|inner| {
            let mut outer = element.clone();
            outer.children[at] = inner;
            outer
        }));
    }
    all
}

#[test]
fn no_element_can_get_lost_or_come_twice_unnoticed() {
    let lose = |all: &mut Vec<Element>, at: usize| drop(all.remove(at));
    let double = |all: &mut Vec<Element>, at: usize| all.insert(at, all[at].clone());
    let empty = |all: &mut Vec<Element>, at: usize| {
        all[at] = Element { name: all[at].name.clone(), ..Element::default() };
    };
    for (text, from) in real() {
        let read = |text: &str| objects(text, asked(&from));
        let (root, whole) = (xml::parse(text).unwrap(), read(text));
        assert_eq!(read(&written(&root)), whole);
        let mut refused = 0;
        for change in [&lose as &dyn Fn(&mut Vec<Element>, usize), &double, &empty] {
            for changed in changed(&root, change) {
                let found = read(&written(&changed));
                assert!(found.is_err() || found == whole, "{found:?} from {}", written(&changed));
                refused += usize::from(found.is_err());
            }
        }
        // Name, Prefix, KeyCount and IsTruncated, each lost, doubled and empty.
        assert!(refused >= 12, "{refused}");
    }
}

#[test]
fn only_the_answer_to_the_question_counts() {
    for other in
        ["", " ", "<", "<html></html>", "<!DOCTYPE html><html></html>", "{}", "\u{fffd}", REFUSAL, UPLOADS]
    {
        assert!(objects(other, asked("")).is_err(), "{other}");
    }
    assert!(uploads(ALL, asked("")).is_err() && uploads("<ListMultipartUploadsResult/>", asked("")).is_err());
    let table = [
        (ListRequest { bucket: "other", ..asked("") }, "it is not about this bucket"),
        (ListRequest { prefix: "shoot--p--s2/", ..asked("") }, "it is about another prefix"),
        (ListRequest { prefix: "", ..asked("") }, "it is about another prefix"),
    ];
    for (asked, expected) in table {
        assert_eq!(objects(ALL, asked), Err(expected));
    }
    assert_eq!(objects(LAST, asked("another")), Err("it is another page"));
    // A list that leads back to its own page has no end.
    let token = &real()[3].1;
    let again = FIRST.replace(
        "</ListBucketResult>",
        &format!("<ContinuationToken>{token}</ContinuationToken></ListBucketResult>"),
    );
    assert_eq!(objects(&again, asked(token)), Err("it does not say where it continues"));
}
