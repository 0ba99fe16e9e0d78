//! An object that is written piece by piece, in parts: nobody sees it before it is whole.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use hyper::Method;

use super::client::{Call, S3, etag, unexpected};
use super::xml;
use crate::transfer::failure::Failure;
use crate::transfer::place::Bucket;

/// Bytes of a part: the fewest that S3 allows of any but the last.
const PART_BYTES: usize = 5 << 20;

/// An object that is being written.
pub(crate) struct Upload {
    s3: Rc<S3>,
    bucket: Bucket,
    key: String,
    /// The bytes of the next part.
    next: BytesMut,
    /// That of the upload; none while all fits into one request.
    id: Option<String>,
    /// The tags of the parts that are uploaded.
    parts: Vec<String>,
}

impl Upload {
    pub(crate) fn new(s3: Rc<S3>, bucket: &Bucket, key: &str) -> Self {
        let (bucket, key) = (bucket.clone(), key.to_owned());
        Self { s3, bucket, key, next: BytesMut::new(), id: None, parts: Vec::new() }
    }

    fn call(&self, method: Method) -> Call<'_> {
        Call::new(method, &self.bucket, &self.key)
    }

    /// Adds bytes; a part is uploaded once there are enough.
    ///
    /// # Errors
    /// When the service fails; there will be no object.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.next.extend_from_slice(bytes);
        if self.next.len() < PART_BYTES {
            return Ok(());
        }
        self.send_part().await
    }

    async fn send_part(&mut self) -> Result<(), Failure> {
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let call = Call { query: &[("uploads", "")], ..self.call(Method::POST) };
                let answer = self.s3.call(&call).await?;
                let id = xml::text(&String::from_utf8_lossy(&answer.body), "UploadId");
                let id = id.ok_or_else(|| unexpected("an upload has no id"))?;
                self.id.insert(id).clone()
            }
        };
        let (number, body) = ((self.parts.len() + 1).to_string(), self.next.split().freeze());
        let query = [("partNumber", number.as_str()), ("uploadId", &id)];
        let answer = self.s3.call(&Call { query: &query, body, ..self.call(Method::PUT) }).await?;
        self.parts.push(etag(&answer));
        Ok(())
    }

    /// Makes the object; its tag.
    ///
    /// # Errors
    /// As [`Upload::write`].
    pub(crate) async fn finish(&mut self) -> Result<String, Failure> {
        if self.id.is_none() {
            return self.s3.put(&self.bucket, &self.key, self.next.split().freeze()).await;
        }
        if !self.next.is_empty() {
            self.send_part().await?;
        }
        let id = self.id.clone().unwrap_or_default();
        let call = Call {
            query: &[("uploadId", &id)],
            body: Bytes::from(xml::completion(&self.parts)),
            ..self.call(Method::POST)
        };
        let answer = self.s3.call(&call).await?;
        self.id = None;
        let tag = xml::text(&String::from_utf8_lossy(&answer.body), "ETag");
        Ok(tag.unwrap_or_default().trim_matches('"').to_owned())
    }

    /// Has the service forget the parts of an object that will not be made.
    pub(crate) async fn abort(&mut self) {
        let Some(id) = self.id.take() else { return };
        let call = Call { query: &[("uploadId", &id)], ..self.call(Method::DELETE) };
        if let Err(failure) = self.s3.call(&call).await {
            tracing::warn!(
                "parts of {}/{} are left in the service: {}",
                self.bucket.name,
                self.key,
                failure.message
            );
        }
    }
}
