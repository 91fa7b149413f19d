//! Owners in chown's notation, with the names defined by the image itself.

use std::str::FromStr;

use flysch_api::vfs::{FileSystem, FileSystemExt, FsError};

use super::{EditError, Editor};
use crate::path::follow;

/// Maximum bytes of a list of users.
const LIST_MAX: usize = 16 << 20;

/// The owner of a file: `OWNER`, `OWNER:GROUP`, `:GROUP`, `OWNER:` (with the owner's group).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerChange {
    user: Option<Who>,
    group: Option<Who>,
    /// The group is the user's.
    login_group: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Number(u32),
    Name(String),
}

impl FromStr for OwnerChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let who = |text: &str| match (text, text.parse()) {
            ("", _) => None,
            (_, Ok(number)) => Some(Who::Number(number)),
            (name, Err(_)) => Some(Who::Name(name.to_owned())),
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let is_login = text.ends_with(':');
        let change = Self { user: who(user), group: who(group), login_group: is_login };
        let bad = change.user.is_none() && change.group.is_none();
        match bad || group.contains(':') {
            true => Err(format!("`{text}` is not an owner such as 0:0, root, :users or 1000:")),
            false => Ok(change),
        }
    }
}

impl Editor<'_> {
    /// The numbers of an owner and a group, with names from the image's own /etc/passwd and
    /// /etc/group. `None`: unchanged.
    ///
    /// # Errors
    /// [`EditError::Unknown`] for an unknown name.
    pub fn owners(&self, change: &OwnerChange) -> Result<(Option<u32>, Option<u32>), EditError> {
        let (owner, login) = match &change.user {
            None => (None, None),
            Some(Who::Number(number)) if !change.login_group => (Some(*number), None),
            Some(who) => {
                let (owner, group) = self.find(b"/etc/passwd", who)?;
                (Some(owner), group.filter(|_| change.login_group))
            }
        };
        let group = match &change.group {
            None => login,
            Some(Who::Number(number)) => Some(*number),
            Some(who) => Some(self.find(b"/etc/group", who)?.0),
        };
        Ok((owner, group))
    }

    /// The third and the fourth field of the line for `who` in a list of the image.
    fn find(&self, list: &'static [u8], who: &Who) -> Result<(u32, Option<u32>), EditError> {
        let text = self.read_list(list)?;
        let lines = text.split(|&byte| byte == b'\n');
        for line in lines {
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
            let number = |at: usize| {
                let field = fields.get(at).and_then(|field| std::str::from_utf8(field).ok());
                field.and_then(|field| field.parse::<u32>().ok())
            };
            let is_it = match who {
                Who::Number(wanted) => number(2) == Some(*wanted),
                Who::Name(name) => fields.first() == Some(&name.as_bytes()),
            };
            if let (true, Some(found)) = (is_it, number(2)) {
                return Ok((found, number(3)));
            }
        }
        match who {
            // Whatever the lists say, or if there are none.
            Who::Name(name) if name == "root" => Ok((0, Some(0))),
            who => Err(EditError::Unknown {
                who: match who {
                    Who::Number(number) => number.to_string(),
                    Who::Name(name) => name.clone(),
                },
                list: String::from_utf8_lossy(list).into_owned(),
            }),
        }
    }

    fn read_list(&self, list: &'static [u8]) -> Result<Vec<u8>, EditError> {
        let fs: &dyn FileSystem = &*self.fs;
        let Ok(inode) = follow(fs, list) else { return Ok(Vec::new()) };
        let fail = super::at(list);
        fs.read_all(inode, LIST_MAX).map_err(|error| match error {
            FsError::BufferTooSmall(_) => fail(FsError::FileTooLarge),
            error => fail(error),
        })
    }
}
