//! The site: what the browser downloads. The frontend's WASM with its JavaScript glue, and the style sheet, each named after
//! its content (so that browsers may keep it for ever) and compressed ahead of time. It lies in a `site` folder beside the
//! server's program, which looks for it there.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use wasm_bindgen_cli_support::Bindgen;

use crate::workspace::{Profile, Workspace, run};

/// `output-name` in Cargo.toml's `[[workspace.metadata.leptos]]`.
const NAME: &str = "job-leases";

/// Builds the site and returns its folder. What did not change since the last time is not made again.
///
/// There is one kind only, optimised: for the browser, unoptimised WASM takes longer to link, bind and load than this to compile.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let wasm = fs::read(build_wasm(workspace)?)?;
    let css = style(&workspace.root.join("style/main.css"))?;
    let assets = read_tree(&workspace.root.join("style/assets"))?;

    let out = workspace.out(Profile::Release);
    let site = out.join("site");
    let recipe = fs::metadata(std::env::current_exe()?)?.modified()?;
    let inputs = hash(format!("{recipe:?} {} {} {:?}", hash(&wasm), hash(&css), assets).as_bytes());
    let stamp = out.join("site.inputs");
    if site.is_dir() && fs::read_to_string(&stamp).is_ok_and(|last| last == inputs) {
        return Ok(site);
    }

    let mut files = assets;
    let hashes = bind(&wasm, css, &mut files)?;
    compress(&mut files)?;
    files.insert("hash.txt".into(), hashes.into_bytes());
    replace_folder(&site, &files)?;
    fs::write(stamp, inputs)?;
    for kind in ["wasm", "css"] {
        if let Some(size) = compressed_size(&site, kind)? {
            println!("site: {kind} {size} bytes (brotli)");
        }
    }
    Ok(site)
}

/// The size in bytes of the brotli-compressed file with this extension, if there is one.
pub(crate) fn compressed_size(site: &Path, extension: &str) -> Result<Option<u64>> {
    let end = format!(".{extension}.br");
    for entry in fs::read_dir(site.join("pkg"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(&end) {
            return Ok(Some(entry.metadata()?.len()));
        }
    }
    Ok(None)
}

/// Compiles the frontend, in a build folder of its own so that the server can be built at the same time.
fn build_wasm(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target.join("site");
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--package", "frontend", "--target", "wasm32-unknown-unknown", "--profile", "wasm-release"]);
    run(cargo.arg("--target-dir").arg(&target))?;
    Ok(target.join("wasm32-unknown-unknown").join("wasm-release/frontend.wasm"))
}

/// One style sheet of `main` and the files that it imports, one `@import "file";` a line, without comments and indentation.
fn style(main: &Path) -> Result<String> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut sheet = String::new();
    for line in read(main)?.lines() {
        match line.strip_prefix("@import \"").and_then(|rest| rest.strip_suffix("\";")) {
            Some(file) => sheet.push_str(&read(&main.with_file_name(file))?),
            None => sheet.push_str(line),
        }
        sheet.push('\n');
    }
    Ok(without_comments(&sheet))
}

fn without_comments(sheet: &str) -> String {
    let mut rest = sheet;
    let mut code = String::with_capacity(sheet.len());
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    code.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}

/// Adds the browser's files to `files`, and returns the lines by which Leptos finds their names (`hash.txt`).
fn bind(wasm: &[u8], css: String, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<String> {
    let mut bound = Bindgen::new()
        .input_bytes(NAME, wasm.to_vec())
        .web(true)?
        .typescript(false)
        .omit_default_module_path(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate_output()?;

    let mut snippets = BTreeMap::new();
    for (owner, scripts) in bound.snippets() {
        for (index, script) in scripts.iter().enumerate() {
            snippets.insert(format!("{owner}/inline{index}.js"), script.clone());
        }
    }
    snippets.extend(bound.local_modules().iter().map(|(path, script)| (path.clone(), script.clone())));
    // The glue imports snippets by fixed names: the folder carries the hash of their contents instead.
    let folder = format!("snippets.{}", hash(format!("{snippets:?}").as_bytes()));
    let glue = bound.js().replace("'./snippets/", &format!("'./{folder}/"));
    for (path, script) in snippets {
        files.insert(Path::new("pkg").join(&folder).join(path), script.into_bytes());
    }

    let mut hashes = String::new();
    let wasm = bound.wasm_mut().emit_wasm();
    for (extension, content) in [("js", glue.into_bytes()), ("wasm", wasm), ("css", css.into_bytes())] {
        let hash = hash(&content);
        files.insert(format!("pkg/{NAME}.{hash}.{extension}").into(), content);
        hashes.push_str(&format!("{extension}: {hash}\n"));
    }
    Ok(hashes)
}

/// Adds a `.br` and a `.gz` beside each file that gains by it.
fn compress(files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let mut compressed = BTreeMap::new();
    for (path, content) in &*files {
        let mut brotli = Vec::new();
        let params = brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 22, ..Default::default() };
        brotli::BrotliCompress(&mut content.as_slice(), &mut brotli, &params)?;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(content)?;
        for (ending, packed) in [("br", brotli), ("gz", gzip.finish()?)] {
            if packed.len() < content.len() {
                let mut name = path.clone().into_os_string();
                name.push(format!(".{ending}"));
                compressed.insert(name.into(), packed);
            }
        }
    }
    files.extend(compressed);
    Ok(())
}

/// Every file under `folder` by its path within; nothing if there is no such folder.
pub(crate) fn read_tree(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = PathBuf::from(path.file_name().context("an entry has a name")?);
        if path.is_dir() {
            files.extend(read_tree(&path)?.into_iter().map(|(inner, content)| (name.join(inner), content)));
        } else {
            files.insert(name, fs::read(&path)?);
        }
    }
    Ok(files)
}

/// Puts `files` in place of all that `folder` held. Written beside it first: a build that fails half way leaves the old site.
fn replace_folder(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    for (path, content) in files {
        let path = new.join(path);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        fs::write(path, content)?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(new, folder)?;
    Ok(())
}

/// 64 bits of SHA-256 in hexadecimal: enough to tell one build's file from another's.
fn hash(content: impl AsRef<[u8]>) -> String {
    Sha256::digest(content)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_is_all_that_is_imported_without_its_comments() {
        assert_eq!(without_comments("/* a\n b */\n.x {\n  color: red; /* c */\n}\n\n"), ".x {\ncolor: red;\n}\n");
        let style_folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("style");
        let sheet = style(&style_folder.join("main.css")).unwrap();
        assert!(!sheet.contains("@import") && !sheet.contains("/*"), "{sheet}");
        for entry in fs::read_dir(style_folder).unwrap() {
            let path = entry.unwrap().path();
            let is_part = path.extension().is_some_and(|kind| kind == "css") && !path.ends_with("main.css");
            if is_part {
                let part = without_comments(&fs::read_to_string(&path).unwrap());
                assert!(sheet.contains(&part), "{} is not imported", path.display());
            }
        }
    }
}
