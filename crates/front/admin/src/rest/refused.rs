//! Requests of ScyllaDB that are organized in another way here, or whose figures are not counted, as `refused.txt` lists them: each with the
//! reason, and the way to the same end where there is one.

use super::routes;

/// A line for each reason: the method, or `*` for any; paths, with `{NAME}` for a segment that varies and `...` for any segments; the reason.
const REFUSED: &str = include_str!("refused.txt");

/// Why a request is refused; none for one that is answered, or unknown.
pub(super) fn why(method: &str, segments: &[&str]) -> Option<&'static str> {
    REFUSED.lines().find_map(|line| {
        let (requests, why) = line.split_once(" | ")?;
        let (of, paths) = requests.split_once(' ')?;
        let is_meant =
            ["*", method].contains(&of) && paths.split(' ').any(|path| routes::fits(path, segments));
        is_meant.then_some(why)
    })
}
