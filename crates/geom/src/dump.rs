//! The graph as text: `confxml` and `confdot` of FreeBSD.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use crate::class::Object;
use crate::graph::Graph;
use crate::object::{ConsumerId, GeomId, ProviderId};

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' | '<' | '>' | '\'' | '"' => {
                let _ = write!(out, "&#x{:X};", u32::from(character));
            }
            '\t' | '\n' | '\r' => out.push(character),
            '\0'..=' ' if character != ' ' => out.push('?'),
            '\x7F'.. => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(out, "&#x{byte:02X};");
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// A quoted string of a dot file.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1F' | '\x7F' => out.push('?'),
            other => out.push(other),
        }
    }
    out
}

impl Graph {
    /// The whole graph in the form of `sysctl kern.geom.confxml`.
    #[must_use]
    pub fn confxml(&self) -> String {
        let mut out = String::from("<mesh>\n");
        for (number, class) in self.classes.iter().enumerate() {
            let _ = writeln!(out, "  <class id=\"{}\">", class_id(number));
            let _ = writeln!(out, "    <name>{}</name>", class.name());
            let geoms = self.geoms().rev().filter(|(_, geom)| geom.class.name() == class.name());
            for (geom, _) in geoms {
                self.geom_xml(&mut out, geom, number);
            }
            out.push_str("  </class>\n");
        }
        out.push_str("</mesh>\n");
        out
    }

    fn geom_xml(&self, out: &mut String, geom: GeomId, class: usize) {
        let there = &self[geom];
        let _ = writeln!(out, "    <geom id=\"{:#x}\">", geom.number());
        let _ = writeln!(out, "      <class ref=\"{}\"/>", class_id(class));
        let _ = writeln!(out, "      <name>{}</name>", escaped(&there.name));
        let _ = writeln!(out, "      <rank>{}</rank>", there.rank);
        match there.withering {
            true => out.push_str("      <wither/>\n"),
            false => self.config_xml(out, Object::Geom(geom), "      "),
        }
        for &consumer in there.consumers.iter().rev() {
            self.consumer_xml(out, consumer);
        }
        for &provider in there.providers.iter().rev() {
            self.provider_xml(out, provider);
        }
        out.push_str("    </geom>\n");
    }

    fn config_xml(&self, out: &mut String, object: Object, indent: &str) {
        let geom = match object {
            Object::Geom(geom) => geom,
            Object::Provider(provider) => self[provider].geom,
            Object::Consumer(consumer) => self[consumer].geom,
        };
        let config = self[geom].class.config(self, object);
        if config.is_empty() {
            return;
        }
        let _ = writeln!(out, "{indent}<config>");
        for (name, value) in config {
            let _ = writeln!(out, "{indent}  <{name}>{}</{name}>", escaped(&value));
        }
        let _ = writeln!(out, "{indent}</config>");
    }

    fn consumer_xml(&self, out: &mut String, consumer: ConsumerId) {
        let there = &self[consumer];
        let _ = writeln!(out, "\t<consumer id=\"{:#x}\">", consumer.number());
        let _ = writeln!(out, "\t  <geom ref=\"{:#x}\"/>", there.geom.number());
        if let Some(provider) = there.provider {
            let _ = writeln!(out, "\t  <provider ref=\"{:#x}\"/>", provider.number());
        }
        let _ = writeln!(out, "\t  <mode>{}</mode>", there.access);
        self.config_xml(out, Object::Consumer(consumer), "\t  ");
        out.push_str("\t</consumer>\n");
    }

    fn provider_xml(&self, out: &mut String, provider: ProviderId) {
        let there = &self[provider];
        let _ = writeln!(out, "\t<provider id=\"{:#x}\">", provider.number());
        let _ = writeln!(out, "\t  <geom ref=\"{:#x}\"/>", there.geom.number());
        let _ = writeln!(out, "\t  <mode>{}</mode>", there.access);
        let _ = writeln!(out, "\t  <name>{}</name>", escaped(&there.name));
        let _ = writeln!(out, "\t  <mediasize>{}</mediasize>", there.media_size);
        let _ = writeln!(out, "\t  <sectorsize>{}</sectorsize>", there.sector_size);
        let _ = writeln!(out, "\t  <stripesize>{}</stripesize>", there.stripe_size);
        let _ = writeln!(out, "\t  <stripeoffset>{}</stripeoffset>", there.stripe_offset);
        self.config_xml(out, Object::Provider(provider), "\t  ");
        out.push_str("\t</provider>\n");
    }

    /// The whole graph in the form of `sysctl kern.geom.confdot`, for `dot`.
    #[must_use]
    pub fn confdot(&self) -> String {
        let mut out = String::from("digraph geom {\n");
        for (id, geom) in self.geoms() {
            let (class, name) = (geom.class.name(), quoted(&geom.name));
            let at = id.number();
            let _ =
                writeln!(out, "z{at:#x} [shape=box,label=\"{class}\\n{name}\\nr#{}\"];", geom.rank);
            for &consumer in &geom.consumers {
                let (number, access) = (consumer.number(), self[consumer].access);
                let _ = writeln!(out, "z{number:#x} [label=\"{access}\"];");
                let _ = writeln!(out, "z{at:#x} -> z{number:#x};");
                if let Some(provider) = self[consumer].provider {
                    let _ = writeln!(out, "z{number:#x} -> z{:#x};", provider.number());
                }
            }
            for &provider in &geom.providers {
                let (number, there) = (provider.number(), &self[provider]);
                let label = format!(
                    "{}\\n{}\\nerr#{}\\nsector={}\\nstripe={}",
                    quoted(&there.name),
                    there.access,
                    u8::from(there.error.is_some()),
                    there.sector_size,
                    there.stripe_size
                );
                let _ = writeln!(out, "z{number:#x} [shape=hexagon,label=\"{label}\"];");
                let _ = writeln!(out, "z{number:#x} -> z{at:#x};");
            }
        }
        out.push_str("}\n");
        out
    }
}

/// Classes are not objects of the graph: their numbers are above all others.
fn class_id(number: usize) -> String {
    format!("{:#x}", 0x1_0000_0000_u64 + number as u64)
}
