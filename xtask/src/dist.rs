//! `cargo xtask dist`: one archive with all that another machine of the same kind needs. The same sources and compiler give
//! the same archive: entries in a fixed order, without times or owners.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::Value;

use crate::{
    site,
    workspace::{Profile, Workspace, line},
};

const DOCUMENTS: [&str; 5] = ["CHANGELOG.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let site = site::build(workspace)?;
    let program = workspace.build_server(Profile::Dist)?;
    let name = format!("job-leases-{}-{}-{}", env!("CARGO_PKG_VERSION"), env::consts::ARCH, env::consts::OS);

    let mut entries = BTreeMap::new();
    entries.insert(PathBuf::from("job-leases"), fs::read(program)?);
    for document in DOCUMENTS {
        entries.insert(document.into(), fs::read(workspace.root.join(document)).with_context(|| document.to_owned())?);
    }
    entries.insert("THIRD-PARTY-LICENSES".into(), third_party(workspace)?.into_bytes());
    for (path, content) in site::read_tree(&site)? {
        entries.insert(Path::new("site").join(path), content);
    }

    let folder = workspace.out(Profile::Dist);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.tar.gz"));
    let gzip = GzBuilder::new().write(fs::File::create(&path)?, Compression::best());
    let mut archive = tar::Builder::new(gzip);
    for (path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(if path.as_os_str() == "job-leases" { 0o755 } else { 0o644 });
        header.set_mtime(0);
        archive.append_data(&mut header, Path::new(&name).join(path), content.as_slice())?;
    }
    archive.into_inner()?.finish()?.sync_all()?;
    println!("{}", path.display());
    Ok(())
}

/// The licence texts of every crate compiled into the server or the frontend, each text once, under the crates that carry it.
fn third_party(workspace: &Workspace) -> Result<String> {
    let metadata: Value =
        serde_json::from_str(&output(workspace.cargo().args(["metadata", "--format-version=1", "--locked"]))?)?;
    let mut folders = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata lists packages")? {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let folder = Path::new(text("manifest_path")).parent().context("a manifest lies in a folder")?;
        folders
            .insert(format!("{} v{}", text("name"), text("version")), (folder.to_owned(), text("license").to_owned()));
    }

    let mut compiled = BTreeSet::new();
    for half in [&["--package", "server"][..], &["--package", "frontend", "--target", "wasm32-unknown-unknown"]] {
        let tree =
            output(workspace.cargo().args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]).args(half))?;
        // `name v1.2.3`, then perhaps marks; a folder's path for crates of this workspace, which have no third-party licence.
        let foreign = tree.lines().filter(|line| !line.contains(" (/"));
        compiled.extend(foreign.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")));
    }

    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in compiled {
        let Some((folder, licence)) = folders.get(&name) else { continue };
        let mut found = false;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
            if path.is_file() && ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|start| file.starts_with(start))
            {
                let text = String::from_utf8_lossy(&fs::read(&path)?).trim().replace("\r\n", "\n");
                texts.entry(text).or_default().push(format!("{name} ({licence})"));
                found = true;
            }
        }
        if !found {
            texts
                .entry("(the crate carries no licence file)".to_owned())
                .or_default()
                .push(format!("{name} ({licence})"));
        }
    }
    let rule = "=".repeat(80);
    Ok(texts.into_iter().map(|(text, names)| format!("{rule}\n{}\n\n{text}\n\n", names.join("\n"))).collect())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{} failed: {}", line(command), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
