//! Permissions in chmod's notation.

use std::str::FromStr;

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// These, whatever they were: 0 to 0o7777.
    To(u16),
    /// Several changes in sequence.
    By(Vec<Clause>),
}

/// One change: `g-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The bits concerned: those of user, group and others, with their set-id and sticky bits.
    who: u16,
    /// `+`, `-` or `=`.
    operation: u8,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Bits; those of `X` only for directories and files that somebody may execute.
    Bits { bits: u16, execute: bool },
    /// The permissions of user (6), group (3) or others (0): the shift.
    Of(u32),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHERS: u16 = 0o1007;
/// Without `ugoa`, subject to the usual umask of 022.
const USUAL: u16 = 0o7755;

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a mode such as 644, 4755, u+x or go=rX");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u16::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o7777);
            return mode.map(Self::To).ok_or_else(wrong);
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause.as_bytes(), &mut clauses).ok_or_else(wrong)?;
        }
        Ok(Self::By(clauses))
    }
}

/// `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
fn parse_clause(text: &[u8], clauses: &mut Vec<Clause>) -> Option<()> {
    let len = text.iter().take_while(|&byte| b"ugoa".contains(byte)).count();
    let (named, mut rest) = text.split_at(len);
    let who = named.iter().fold(0, |who, byte| match byte {
        b'u' => who | USER,
        b'g' => who | GROUP,
        b'o' => who | OTHERS,
        _ => 0o7777,
    });
    let who = if named.is_empty() { USUAL } else { who };
    while let [operation @ (b'+' | b'-' | b'='), behind @ ..] = rest {
        let len = behind.iter().take_while(|byte| !b"+-=".contains(byte)).count();
        let (what, next) = behind.split_at(len);
        let what = match what {
            b"u" => What::Of(6),
            b"g" => What::Of(3),
            b"o" => What::Of(0),
            letters => {
                let mut bits = 0;
                for letter in letters {
                    bits |= match letter {
                        b'r' => 0o444,
                        b'w' => 0o222,
                        b'x' => 0o111,
                        b's' => 0o6000,
                        b't' => 0o1000,
                        b'X' => 0,
                        _ => return None,
                    };
                }
                What::Bits { bits, execute: letters.contains(&b'X') }
            }
        };
        clauses.push(Clause { who, operation: *operation, what });
        rest = next;
    }
    (rest.is_empty() && text.len() > len).then_some(())
}

impl ModeChange {
    /// The permissions of a file that has `old`.
    pub fn apply(&self, old: u16, is_directory: bool) -> u16 {
        let clauses = match self {
            Self::To(mode) => return *mode,
            Self::By(clauses) => clauses,
        };
        clauses.iter().fold(old, |mode, clause| {
            let bits = match clause.what {
                What::Of(shift) => (mode >> shift & 7) * 0o111,
                What::Bits { bits, execute: true } if is_directory || mode & 0o111 != 0 => {
                    bits | 0o111
                }
                What::Bits { bits, .. } => bits,
            };
            match clause.operation {
                b'+' => mode | bits & clause.who,
                b'-' => mode & !(bits & clause.who),
                // A directory keeps its set-id bits unless they are spoken of, as with chmod.
                _ => {
                    let kept = if is_directory { !clause.who | 0o6000 } else { !clause.who };
                    mode & kept | bits & clause.who
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Compared with chmod itself.
    #[test]
    fn it_does_what_chmod_does() {
        let folder = tempfile::tempdir().unwrap();
        let (file, directory) = (folder.path().join("file"), folder.path().join("directory"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&directory).unwrap();
        let modes = "644 4755 u+x +w -w go=rX a-x,u+s g=u o= ug+rw,o-w =r +t u=g,g=o a=rwx,go-w \
                     u+x-w g+s o+t X=r u +Z 8 7777 77777 u+rwxX, a+X";
        for mode in modes.split_ascii_whitespace() {
            for (path, old) in [(&file, 0o640), (&file, 0o6751), (&directory, 0o2750)] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(old.into())).unwrap();
                let script = format!("umask 022; chmod -- {mode} {}", path.display());
                let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
                let is = (std::fs::metadata(path).unwrap().permissions().mode() & 0o7777) as u16;
                let ours: Result<ModeChange, _> = mode.parse();
                let is_directory = path == &directory;
                match ours {
                    // chmod keeps the set-id bits of directories for numbers; we take the number.
                    Ok(ModeChange::To(_)) if is_directory => {}
                    Ok(change) => {
                        assert!(ran.status.success(), "{mode}");
                        assert_eq!(change.apply(old, is_directory), is, "{mode} of {old:o}");
                    }
                    Err(_) => assert!(!ran.status.success(), "{mode}"),
                }
            }
        }
    }
}
