#pragma once
// The run directory: manifest.json (who ran what, and how it ended), metrics.jsonl (rows of training), samples.jsonl (the
// machine), events.jsonl (what happened), checkpoints/, and a lock so that one run has one writer. `train` and `record` write the
// same format: docs/run-format.md. Streams only grow. On a resume the caller truncates metrics.jsonl to its checkpoint, because
// those steps are taken again; samples and events are facts in time that no later start undoes, so they stay.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/held_folder.h"
#include "record/metrics.h"

namespace millrace::record {

enum class RunStatus { kRunning, kFinished, kInterrupted, kFailed };

std::string_view name_of(RunStatus status);  ///< "running", "finished", "interrupted", "failed"

/// One start of a run after its first.
struct Resumption {
    std::string time;
    std::vector<std::string> command;
};

/// Weights that a run started from.
struct WeightsOrigin {
    std::string path;      ///< absolute: a checkpoint's folder or a safetensors file
    std::string checksum;  ///< of the files' bytes, 16 hexadecimal digits of io::Checksum64
};

/// The content of manifest.json.
struct Manifest {
    int format = 1;
    std::string millrace;                         ///< version; filled in on creation
    std::vector<std::string> command;             ///< argv
    std::string recipe = "{}";                    ///< a JSON object
    std::string device;                           ///< "cpu", "cuda:0 NVIDIA H200"
    std::map<std::string, std::string> versions;  ///< of what was used: the compiler
    std::string started;                          ///< UTC, "2025-11-04T12:00:00Z"; filled in on creation
    std::string ended;                            ///< empty while running
    RunStatus status = RunStatus::kRunning;
    std::string reason;  ///< why it ended, a text; empty while running
    std::optional<int> exit_status;
    std::vector<Resumption> resumed;
    std::optional<WeightsOrigin> init;  ///< absent: the weights were drawn
};

/// Reads and checks `folder`/manifest.json.
base::Result<Manifest> read_manifest(const io::Path& folder);
/// The same from its text; `place` names the file in errors.
base::Result<Manifest> parse_manifest(std::string_view text, const io::Path& place);
base::Result<std::string> manifest_text(const Manifest& manifest, const io::Path& place);

enum class RunStart {
    kNew,     ///< the folder is missing or empty
    kResume,  ///< the folder holds a run that goes on
};

/// One writer's hold of a run: the folder itself is locked, and a file in it for file systems that lock no folders. Removing the
/// file makes no room for a second writer.
struct RunLock {
    io::KeptFolder folder;
    io::FileDescriptor file;
};

/// Takes the lock of the run in `folder`, without changing anything in it: what is read from now on no other process replaces.
/// For RunDirectory::open with kResume.
base::Result<RunLock> lock_run(const io::Path& folder);

class RunDirectory {
public:
    /// Opens `folder` for writing, takes its lock (unless the caller hands in the one it holds) and writes the manifest with
    /// status `running`, and the event `started` or `resumed`. On kResume the manifest of the run stays and notes the new start;
    /// metrics and checkpoints stay until the caller truncates or replaces them.
    static base::Result<RunDirectory> open(const io::Path& folder, RunStart start, Manifest manifest,
                                           std::optional<RunLock> held = std::nullopt);

    /// As it was given, for people: by now it may lead elsewhere.
    [[nodiscard]] const io::Path& path() const { return folder_; }
    /// The folder that is written: files in it are reached by held().path().
    [[nodiscard]] const io::KeptFolder& held() const { return lock_.folder; }
    [[nodiscard]] io::Path checkpoints() const { return held().path() / "checkpoints"; }
    [[nodiscard]] io::Path samples() const { return held().path() / "samples.jsonl"; }  ///< for json_lines_sink with kAppend
    [[nodiscard]] const Manifest& manifest() const { return manifest_; }
    [[nodiscard]] MetricsWriter& metrics() { return metrics_; }
    [[nodiscard]] EventWriter& events() { return events_; }  ///< from any thread

    /// Says in the manifest what the run uses, where that was not known at its start.
    base::Status describe(std::string device, std::map<std::string, std::string> versions);
    /// Flushes the metrics and records how the run ended, in the manifest and as an event whose text is `why`. Metrics that
    /// cannot be written make it a failed run. Without this call (a crash) the manifest goes on saying `running`; that the lock
    /// is free tells the reader otherwise.
    base::Status finish(RunStatus status, int exit_status, std::string_view why = "the run ended");

private:
    static base::Result<RunDirectory> open_locked(const io::Path& folder, RunStart start, Manifest manifest, RunLock& lock);
    RunDirectory(io::Path folder, RunLock lock, Manifest manifest, MetricsWriter metrics, EventWriter events)
        : folder_(std::move(folder)),
          lock_(std::move(lock)),
          manifest_(std::move(manifest)),
          metrics_(std::move(metrics)),
          events_(std::move(events)) {}

    io::Path folder_;
    RunLock lock_;
    Manifest manifest_;
    MetricsWriter metrics_;
    EventWriter events_;
};

/// Whether some process holds the lock of the run in `folder` now.
bool is_being_written(const io::Path& folder);

}  // namespace millrace::record
