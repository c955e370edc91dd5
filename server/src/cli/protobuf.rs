//! The wire format of protobuf: fields by number, without a schema. For formats of others of which a few fields count.

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is no protobuf message")]
pub struct NoMessage;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProtoValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> ProtoValue<'a> {
    /// Empty where the field is none of bytes: who wrote it meant another message.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    pub fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// An `int32`, an `int64` or a `bool`.
    pub fn int(self) -> i64 {
        match self {
            Self::Varint(bits) | Self::Fixed64(bits) => bits.cast_signed(),
            Self::Fixed32(bits) => i64::from(bits.cast_signed()),
            Self::Bytes(_) => 0,
        }
    }

    /// A `double` or a `float`.
    pub fn float(self) -> f64 {
        match self {
            Self::Fixed64(bits) => f64::from_bits(bits),
            Self::Fixed32(bits) => f64::from(f32::from_bits(bits)),
            Self::Varint(_) | Self::Bytes(_) => 0.0,
        }
    }
}

/// The fields of a message in the order in which they stand. After a broken one there is none.
#[derive(Clone, Debug)]
pub struct ProtoFields<'a>(&'a [u8]);

impl<'a> ProtoFields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, ProtoValue<'a>)> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => ProtoValue::Varint(varint(&mut self.0)?),
            1 => ProtoValue::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let bytes = usize::try_from(varint(&mut self.0)?).ok()?;
                ProtoValue::Bytes(self.take(bytes)?)
            }
            5 => ProtoValue::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((u32::try_from(key >> 3).ok()?, value))
    }
}

impl<'a> Iterator for ProtoFields<'a> {
    type Item = Result<(u32, ProtoValue<'a>), NoMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(NoMessage))
    }
}

/// The number that `bytes` start with, which are those behind it afterwards.
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Writes a message, field by field.
#[derive(Clone, Debug, Default)]
pub struct ProtoWriter(Vec<u8>);

impl ProtoWriter {
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn put_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn int(&mut self, field: u32, number: i64) {
        self.put_varint(u64::from(field) << 3);
        self.put_varint(number.cast_unsigned());
    }

    pub fn double(&mut self, field: u32, number: f64) {
        self.put_varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn float(&mut self, field: u32, number: f32) {
        self.put_varint(u64::from(field) << 3 | 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.put_varint(u64::from(field) << 3 | 2);
        self.put_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn message(&mut self, field: u32, message: ProtoWriter) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
mod tests;
