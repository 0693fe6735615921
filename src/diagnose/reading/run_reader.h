#pragma once
// Reads a run directory: finished, killed or going on right now. Everything in it may be torn, foreign or hostile; what cannot be
// read is counted, and memory stays bounded whatever the size of the files.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/line_file.h"
#include "record/run_directory.h"

namespace millrace::diagnose {

/// How much of a stream is kept in memory. Beyond, every second row of the kinds that come by the clock ("sample", "interval",
/// "components") and of "loader_spike" is let go, again and again; rows of other kinds stay while there is room.
struct ReadLimits {
    std::size_t line_bytes = io::kLineCap;
    std::size_t rows = std::size_t{1} << 17;
    std::size_t text_bytes = std::size_t{64} << 20;  ///< of the lines behind the rows kept
};

/// metrics.jsonl or samples.jsonl.
struct RunStream {
    std::vector<record::MetricsRow> rows;  ///< in the order of the file
    std::uint64_t total = 0;               ///< whole rows in the file; what is beyond rows.size() was let go
    std::uint64_t skipped = 0;             ///< lines that are torn, too long or no flat JSON object
    bool torn = false;                     ///< the last line has no end: cut by a crash, or being written now
};

struct RunContents {
    record::Manifest manifest;
    bool being_written = false;  ///< some process holds the lock now
    RunStream metrics, samples;  ///< empty when the file is missing, as it is in runs of versions before it

    /// The manifest says `running` and no process holds the lock: it was killed.
    [[nodiscard]] bool was_killed() const { return manifest.status == record::RunStatus::kRunning && !being_written; }
};

/// Fails when there is no readable manifest, or when a file is there but cannot be read at all (permissions, no regular file).
base::Result<RunContents> read_run(const io::Path& folder, const ReadLimits& limits = {});

/// The same from text: what read_run does with each file, for tests.
RunStream parse_stream(std::string_view text, const ReadLimits& limits = {});

}  // namespace millrace::diagnose
