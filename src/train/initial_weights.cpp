#include "train/initial_weights.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/checksum.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using io::Path;

base::Result<io::LoadedCheckpoint> load_file(const Path& file) {
    MILLRACE_LET(opened, io::open_regular(file));
    MILLRACE_LET(tensors, io::SafetensorsFile::open_in_place(std::move(opened), file));
    io::LoadedCheckpoint loaded;
    loaded.members.push_back({std::move(tensors), std::nullopt});
    loaded.folder = fs::absolute(file);
    return loaded;
}

base::Result<io::LoadedCheckpoint> load_run(const Path& run) {
    const Path checkpoints = run / "checkpoints";
    std::error_code ignored;
    if (fs::exists(checkpoints / "best", ignored)) return io::load_checkpoint(checkpoints / "best", io::LoadParts::kModelOnly);
    MILLRACE_LET(folders, io::checkpoint_folders(checkpoints));
    std::optional<base::Error> damage;
    for (const Path& folder : folders) {
        auto loaded = io::load_checkpoint(folder, io::LoadParts::kModelOnly);
        if (loaded.ok()) return loaded;
        if (!damage) damage = loaded.error();
    }
    if (damage) return *damage;
    return base::Error{"the run has saved no checkpoint to start from", run.string()};
}

base::Result<io::LoadedCheckpoint> load(const Path& from) {
    std::error_code ignored;
    if (!fs::exists(from, ignored)) return base::Error{"no such run or file to start from", from.string()};
    if (!fs::is_directory(from, ignored)) return load_file(from);
    if (fs::exists(from / "manifest.json", ignored)) return load_run(from);
    if (fs::exists(from / "state.json", ignored)) return io::load_checkpoint(from, io::LoadParts::kModelOnly);
    return base::Error{"holds no run and no checkpoint; --init takes a run, a checkpoint or a safetensors file", from.string()};
}

}  // namespace

base::Result<InitialWeights> load_initial_weights(const Path& from) {
    auto loaded = load(from);
    if (!loaded.ok())
        return base::Error{"cannot start from these weights", from.string(), loaded.error().exit_status}.because(loaded.error());
    io::Checksum64 sum;
    for (const io::LoadedMember& member : loaded->members) MILLRACE_TRY(member.model.add_to(sum));
    const record::WeightsOrigin origin{fs::absolute(loaded->folder).string(), fmt::format("{:016x}", sum.value())};
    return InitialWeights{std::move(loaded).value(), origin};
}

base::Result<InitialWeights> reload_initial_weights(const record::WeightsOrigin& origin) {
    MILLRACE_LET(found, load_initial_weights(origin.path));
    if (found.origin.checksum != origin.checksum)
        return base::Error{
            "holds other weights than those that the run started from; put them back or train anew with another --out",
            origin.path};
    return found;
}

}  // namespace millrace::train
