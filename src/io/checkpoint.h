#pragma once
// Checkpoints of a run. `checkpoints/step-00001234/` holds model.safetensors, optimizer.safetensors (or .safetensors.zst) and
// state.json; with K > 1 the tensors of member k lie in member-00k/. `checkpoints/timed-00001234/` is the same, saved because
// time had passed: it stays until the next checkpoint of any kind. `checkpoints/last` and `checkpoints/best` are relative links
// to such folders. Where the best weights of K > 1 members are of different saves, `best` leads to `checkpoints/best-00001234/`
// instead: their models alone, as hard links. A folder is written under a temporary name, synced, renamed, and only then do the
// links move, so at any instant, whatever dies, `last` is a complete checkpoint: the old one or the new one.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/held_folder.h"
#include "io/safetensors.h"

namespace millrace::io {

/// What one member stores. The views are read during save only.
struct MemberTensors {
    std::vector<TensorView> model;
    std::vector<TensorView> optimizer;  ///< empty: no optimizer file
};

struct Checkpoint {
    std::uint64_t step = 0;
    std::vector<MemberTensors> members;  ///< K of them, at least one
    std::string state = "{}";            ///< a JSON object: becomes state.json, with "step" and "checkpoint" added
    bool compress_optimizer = false;     ///< zstd, when this build has it
    std::vector<bool> keeps_best = {};   ///< by member: `best` keeps the model that it has; empty: of none
};

enum class CheckpointKind {
    kStep,   ///< stays for as long as the limits allow
    kTimed,  ///< stays until the next one of any kind and counts towards no `keep`
};

struct CheckpointLimits {
    std::uint32_t keep = 1;        ///< newest step folders to keep; `last` and `best` stay in any case
    std::uint64_t keep_bytes = 0;  ///< bound on all checkpoints together, oldest go first; 0: no bound
};

struct SaveReport {
    Path folder;                    ///< the step folder written
    std::uint64_t bytes = 0;        ///< of this checkpoint
    std::uint64_t total_bytes = 0;  ///< of all that are kept
};

/// The writing side; one per run, whose lock the caller holds.
class CheckpointStore {
public:
    /// Opens (creates) the folder `checkpoints` and removes what interrupted saves left behind. `name` is what people call it;
    /// empty: `checkpoints`. The folder is held: one that was moved is still written, one that took its place never.
    static Result<CheckpointStore> open(const Path& checkpoints, CheckpointLimits limits = {}, Path name = {});

    /// Writes a checkpoint, makes it `last` (and `best` when `is_best`, but for members in `keeps_best`, for which there must be
    /// one), then lets old ones go. After an error `last` and `best` are what they were and nothing half-written is left. On a
    /// full disk old ones go before that, `last` and `best` never. A folder that was removed is made again.
    Result<SaveReport> save(const Checkpoint& checkpoint, bool is_best = false, CheckpointKind kind = CheckpointKind::kStep);

private:
    CheckpointStore(Path given, Path name, KeptFolder folder, CheckpointLimits limits)
        : given_(std::move(given)), name_(std::move(name)), folder_(std::move(folder)), limits_(limits) {}

    [[nodiscard]] const Path& root() const { return folder_.path(); }
    Result<SaveReport> save_inside(const Checkpoint& checkpoint, bool is_best, CheckpointKind kind);
    /// A folder under a temporary name with the files of the checkpoint.
    Result<std::uint64_t> write(const Path& temporary, const Checkpoint& checkpoint) const;
    /// Removes the oldest folder that neither `last` nor `best` needs and that is not `newest`. False: there is none.
    [[nodiscard]] bool drop_oldest(const Path& newest) const;
    Result<Path> gather_best(const Path& newest, const std::vector<bool>& keeps) const;
    Result<Path> free_folder(std::string_view prefix, std::uint64_t step) const;
    Status point(const char* link, const Path& folder) const;
    Status collect(SaveReport& report, std::uint64_t newest) const;

    Path given_, name_;
    KeptFolder folder_;
    CheckpointLimits limits_;
};

struct LoadedMember {
    SafetensorsFile model;
    std::optional<SafetensorsFile> optimizer;
};

struct LoadedCheckpoint {
    std::uint64_t step = 0;
    std::string state;  ///< state.json as JSON text
    std::vector<LoadedMember> members;
    Path folder;  ///< the step folder, links resolved
};

/// The folders of checkpoints of both kinds in `checkpoints`: what `last` names first, then by step, newest first. Complete or
/// not; none when `checkpoints` is missing.
Result<std::vector<Path>> checkpoint_folders(const Path& checkpoints);

enum class LoadParts { kAll, kModelOnly };

/// Members whose tensors stay in files that are held open: a process may have 1,024 in most places. Those of more are read.
constexpr std::uint64_t kMostInPlace = 128;

/// Loads `checkpoints/last`, `checkpoints/best` or a step folder: all files belong to the same save, sizes and checksums as
/// recorded in state.json. Errors name the file that does not fit.
Result<LoadedCheckpoint> load_checkpoint(const Path& folder, LoadParts parts = LoadParts::kAll);

/// One file of a checkpoint as state.json records it.
struct CheckpointFile {
    std::string path;  ///< relative to the checkpoint's folder
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
    std::uint64_t unpacked = 0;  ///< 0 when the file is not compressed
};

/// What state.json says about the checkpoint itself.
struct CheckpointState {
    std::uint64_t step = 0;
    std::uint64_t members = 0;
    std::vector<CheckpointFile> files;
    std::string text;
};
/// `place` names the file in errors.
Result<CheckpointState> parse_checkpoint_state(std::string text, const Path& place);

/// Fills the empty folder `folder` with the files of `checkpoint`, each synced, state.json last. Gives their bytes in all.
Result<std::uint64_t> write_checkpoint_files(const Path& folder, const Checkpoint& checkpoint);
/// Fills the empty folder `folder` with the models of `newest`, but for members that `keeps` names with those of `before`, both
/// folders of checkpoints of as many members. Files get a second name where the file system can, and are copied elsewhere.
Status gather_models(const Path& folder, const Path& newest, const Path& before, const std::vector<bool>& keeps);
/// Reads them back, each against its entry in state.json.
Result<LoadedCheckpoint> read_checkpoint_files(const Path& folder, LoadParts parts);

}  // namespace millrace::io
