//! Files and units of an OperatingSystemConfig.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::json::json;
use crate::components::archive;
use crate::format::base64;

/// A file with this content, which is written encoded.
pub(super) fn encoded(path: &str, mode: u32, content: &[u8]) -> Value {
    json!({"path": path, "permissions": mode, "content": {"inline": {"encoding": "b64", "data": base64::encode(content)}}})
}

/// A file with this text, which extensions can read and change.
pub(super) fn plain(path: &str, mode: u32, content: &str) -> Value {
    json!({"path": path, "permissions": mode, "content": {"inline": {"encoding": "", "data": content}}})
}

/// The text of a file, however it is written. None if it has none, or its bytes are no text.
pub(super) fn text_of(file: &Value) -> Option<String> {
    let inline = &file["content"]["inline"];
    let data = text(&inline["data"]);
    if inline["encoding"] == "b64" {
        return String::from_utf8(base64::decode(data.as_bytes()).ok()?).ok();
    }
    Some(data.to_owned())
}

/// A file whose text is replaced on its way to the machine.
pub(super) fn placeholder(path: &str, mode: u32, text: &str) -> Value {
    let mut file = plain(path, mode, text);
    file["content"]["transmitUnencoded"] = json!(true);
    file
}

/// A program out of an image.
pub(super) fn program(path: &str, image: &str, path_in_image: &str) -> Value {
    json!({"path": path, "permissions": 0o755, "content": {
        "imageRef": {"image": image, "filePathInImage": path_in_image}}})
}

/// A packed file of this folder.
pub(super) fn packed(name: &str) -> String {
    archive::text(&format!("osc/files/{name}"))
}

/// The units with these names, in this order.
pub(super) fn units(names: &[&str]) -> Vec<Value> {
    let all = archive::object("osc/units.yaml");
    let known: Vec<&Value> = all.as_array().into_iter().flatten().collect();
    let of = |name: &&str| known.iter().find(|unit| unit["name"] == **name).map(|unit| (*unit).clone());
    names.iter().filter_map(of).collect()
}
