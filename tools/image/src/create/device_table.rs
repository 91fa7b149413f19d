//! Device tables: lines that add devices, directories and pipes to a tree or change owners and
//! permissions of existing files.
//!
//! `<path> <type> <mode> <uid> <gid> <major> <minor> <start> <inc> <count>`, where type is `f`,
//! `d`, `c`, `b`, `p` or `l`; a count creates that many files, with numbers from start on appended
//! to the path.

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};

use super::{CreateError, Entry, Tree, shown};

/// Maximum number of files created by one line.
const COUNT_MAX: u32 = 1 << 20;

/// One line.
#[derive(Debug)]
struct Line<'l> {
    path: &'l str,
    kind: FileKind,
    permissions: u16,
    owner: u32,
    group: u32,
    device: DeviceNumber,
    start: u32,
    increment: u32,
    count: u32,
}

impl Tree {
    /// Applies the device table `text`; `name` is its name in errors. New files get `time`.
    ///
    /// # Errors
    /// [`CreateError::Refused`] with the number of the line.
    pub fn apply_device_table(
        &mut self,
        name: &str,
        text: &str,
        time: Timestamp,
    ) -> Result<(), CreateError> {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            parse(line)
                .and_then(|line| self.apply_line(&line, time))
                .map_err(|why| CreateError::refused(format_args!("{name}: line {number}"), why))?;
        }
        Ok(())
    }

    fn apply_line(&mut self, line: &Line<'_>, time: Timestamp) -> Result<(), String> {
        if line.count == 0 {
            return self.apply_file(line, line.path.as_bytes(), line.device, time);
        }
        for at in 0..line.count {
            let path = format!("{}{}", line.path, u64::from(line.start) + u64::from(at));
            let minor = at
                .checked_mul(line.increment)
                .and_then(|step| step.checked_add(line.device.minor))
                .ok_or("the minor number gets too large")?;
            let device = DeviceNumber { minor, ..line.device };
            self.apply_file(line, path.as_bytes(), device, time)?;
        }
        Ok(())
    }

    fn apply_file(
        &mut self,
        line: &Line<'_>,
        path: &[u8],
        device: DeviceNumber,
        time: Timestamp,
    ) -> Result<(), String> {
        if let Some(at) = self.find(path) {
            let entry = &mut self.entries[at];
            let plain =
                matches!(entry.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
            if entry.kind != line.kind || !plain {
                return Err(format!("{} already exists and is something else", shown(path)));
            }
            entry.permissions = line.permissions;
            (entry.owner, entry.group) = (line.owner, line.group);
            return Ok(());
        }
        match line.kind {
            FileKind::Regular => {
                return Err(format!("there is no file {}; a table cannot make one", shown(path)));
            }
            FileKind::Symlink => {
                return Err(format!("there is no {}; a table cannot make links", shown(path)));
            }
            _ => {}
        }
        let (directory, name) = self.place(path, time)?;
        let owners = (line.owner, line.group);
        let mut entry = Entry::new(line.kind, line.permissions, owners, [time; 3]);
        entry.device = device;
        self.add(directory, name, entry);
        Ok(())
    }
}

fn parse(line: &str) -> Result<Line<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let path = words.next().unwrap_or_default();
    if !path.starts_with('/') || path.contains("//") || path.len() > 1 && path.ends_with('/') {
        return Err(format!("`{path}`: paths must be absolute and not end in '/'"));
    }
    if path.split('/').any(|name| name == "." || name == "..") {
        return Err(format!("`{path}`: `.` and `..` cannot be used"));
    }
    let kind = match words.next() {
        Some("f") => FileKind::Regular,
        Some("d") => FileKind::Directory,
        Some("c") => FileKind::CharacterDevice,
        Some("b") => FileKind::BlockDevice,
        Some("p") => FileKind::Fifo,
        Some("l") => FileKind::Symlink,
        Some(other) => {
            return Err(format!("`{other}` is not a type: it must be f, d, c, b, p or l"));
        }
        None => return Err("the type is missing".to_string()),
    };
    let mut number = |what: &str, radix, usual: u32| match words.next() {
        None | Some("-") => Ok(usual),
        Some(word) => {
            u32::from_str_radix(word, radix).map_err(|_| format!("`{word}` is not a valid {what}"))
        }
    };
    let mode = number("mode", 8, 0o755)?;
    let (owner, group) = (number("user id", 10, 0)?, number("group id", 10, 0)?);
    let device = DeviceNumber {
        major: number("major number", 10, 0)?,
        minor: number("minor number", 10, 0)?,
    };
    let (start, increment) = (number("start", 10, 0)?, number("increment", 10, 0)?);
    let count = number("count", 10, 0)?;
    if increment != 0 && count == 0 {
        return Err("an increment without a count".to_string());
    }
    if mode > 0o7777 {
        return Err(format!("`{mode:o}` is not a mode: it must be 0 to 7777"));
    }
    if kind == FileKind::Symlink && mode != 0o777 {
        return Err("the mode of a symlink must be 777".to_string());
    }
    if count > COUNT_MAX {
        return Err(format!("{count} files from one line are too many"));
    }
    Ok(Line { path, kind, permissions: mode as u16, owner, group, device, start, increment, count })
}
