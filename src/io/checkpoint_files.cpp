#include "io/checkpoint.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/packing.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kCheckpointFormat = 1;
constexpr const char* kState = "state.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kPackedOptimizer = "optimizer.safetensors.zst";
constexpr std::size_t kLargestWeights = std::size_t{16} << 30;
constexpr std::uint64_t kMaxMembers = 4096;

std::string member_folder(std::size_t member, std::size_t count) {
    return count == 1 ? "" : fmt::format("member-{:03}/", member);
}

Result<CheckpointFile> write_tensors(const Path& folder, const std::string& name, const std::vector<TensorView>& tensors,
                                     bool packed) {
    const Path path = folder / name;
    CheckpointFile entry{name, 0, 0, 0};
    const auto fill = [&](FileWriter& writer) -> Status {
        if (!packed) {
            MILLRACE_TRY(write_safetensors(writer, tensors, {{"format", "pt"}}, path));
            return base::ok();
        }
        const auto zstd = pack_zstd(writer);
        MILLRACE_SET(entry.unpacked, write_safetensors(*zstd, tensors, {{"format", "pt"}}, path));
        return zstd->finish();
    };
    MILLRACE_LET(written, write_new_file(path, fill));
    entry.bytes = written.bytes;
    entry.checksum = written.checksum;
    return entry;
}

Json json_of(const CheckpointFile& entry) {
    Json json{{"path", entry.path}, {"bytes", entry.bytes}, {"checksum", fmt::format("{:016x}", entry.checksum)}};
    if (entry.unpacked > 0) json["unpacked_bytes"] = entry.unpacked;
    return json;
}

/// `in_place`: the tensors may stay in the file, which is held open.
Result<SafetensorsFile> read_tensors(const Path& folder, const CheckpointFile& entry, bool in_place) {
    const Path path = folder / entry.path;
    MILLRACE_LET(opened, open_regular(path));
    if (opened.size != entry.bytes)
        return Error{fmt::format("has {} bytes, state.json of this checkpoint says {}: truncated or from another save",
                                 opened.size, entry.bytes),
                     path.string()};
    Checksum64 sum;
    MILLRACE_TRY(add_file(opened.file, opened.size, sum, path));
    if (sum.value() != entry.checksum)
        return Error{"does not have the checksum in state.json: damaged or from another save", path.string()};
    if (entry.unpacked == 0 && in_place) return SafetensorsFile::open_in_place(std::move(opened), path);
    MILLRACE_LET(bytes, read_file(path, kLargestWeights));
    if (entry.unpacked == 0) return SafetensorsFile::parse(std::move(bytes), path);
    // A zstd block makes at most 128 KiB out of at least 4 bytes: a larger claim is false, and no memory is allocated for it.
    if (entry.unpacked > kLargestWeights || entry.unpacked / 32768 > entry.bytes)
        return Error{fmt::format("cannot unpack to {} bytes as state.json claims", entry.unpacked), path.string()};
    MILLRACE_LET(unpacked, decompress_zstd(bytes, entry.unpacked, path));
    return SafetensorsFile::parse(std::move(unpacked), path);
}

/// state.json, last of all files, with what it lists.
Result<std::uint64_t> write_state(const Path& folder, const Json& state) {
    const std::string text = base::json_text(state, 2) + "\n";
    MILLRACE_LET(written, write_new_file(folder / kState, [&](FileWriter& writer) { return writer.write(bytes_of(text)); }));
    MILLRACE_TRY(sync_folder(folder));
    return written.bytes;
}

Result<CheckpointState> read_state(const Path& folder) {
    MILLRACE_LET(text, read_text(folder / kState));
    return parse_checkpoint_state(std::move(text), folder / kState);
}

/// A second name for a file that is on the disk already.
Status link_file(const Path& from, const Path& to) {
    std::error_code failure;
    fs::create_hard_link(from, to, failure);
    if (!failure) return base::ok();
    MILLRACE_LET(bytes, read_file(from, kLargestWeights));
    MILLRACE_TRY(write_new_file(to, [&](FileWriter& writer) { return writer.write(bytes); }));
    return base::ok();
}

const CheckpointFile* find_entry(const CheckpointState& state, const std::string& path) {
    for (const CheckpointFile& entry : state.files)
        if (entry.path == path) return &entry;
    return nullptr;
}

}  // namespace

Result<CheckpointState> parse_checkpoint_state(std::string text, const Path& place) {
    if (base::nests_too_deep(text)) return Error{"nests too deeply to be the state of a checkpoint", place.string()};
    try {
        const Json json = base::ordered_json_or_throw(text);
        const Json& about = json.at("checkpoint");
        // The library converts any number to any type, whatever becomes of it: only what fits is asked for.
        if (const Json& format = about.at("format"); format != Json(kCheckpointFormat))
            return Error{
                fmt::format("has checkpoint format {}; this version reads {}", base::json_text(format), kCheckpointFormat),
                place.string(), 1};
        CheckpointState state;
        for (const char* key : {"step", "members"})
            if (!about.at(key).is_number_unsigned())
                return Error{fmt::format("'{}' of 'checkpoint' is {}; a whole number from 0 on is needed", key,
                                         base::json_text(about.at(key))),
                             place.string()};
        state.step = about.at("step").get<std::uint64_t>();
        state.members = about.at("members").get<std::uint64_t>();
        if (state.members < 1 || state.members > kMaxMembers)
            return Error{fmt::format("claims {} members; 1 to {} are accepted", state.members, kMaxMembers), place.string()};
        for (const Json& file : about.at("files")) {
            for (const char* key : {"bytes", "unpacked_bytes"})
                if (file.contains(key) && !file.at(key).is_number_unsigned())
                    return Error{fmt::format("'{}' of a file is {}; a whole number from 0 on is needed", key,
                                             base::json_text(file.at(key))),
                                 place.string()};
            state.files.push_back({file.at("path").get<std::string>(), file.at("bytes").get<std::uint64_t>(),
                                   std::stoull(file.at("checksum").get<std::string>(), nullptr, 16),
                                   file.value("unpacked_bytes", std::uint64_t{0})});
        }
        state.text = std::move(text);
        return state;
    } catch (const std::exception&) {
        return Error{"is not the state of a checkpoint: a JSON object with 'checkpoint' {format, step, members, files} is needed",
                     place.string()};
    }
}

Result<std::uint64_t> write_checkpoint_files(const Path& folder, const Checkpoint& checkpoint) {
    Json state = base::ordered_json_from(checkpoint.state);
    if (!state.is_object() || state.contains("checkpoint"))
        return Error{"the state is not a JSON object, or has a key 'checkpoint' of its own", (folder / kState).string()};
    const std::size_t count = checkpoint.members.size();
    MILLRACE_ASSERT(count > 0, "a checkpoint has at least one member");
    const bool packed = checkpoint.compress_optimizer && have_zstd();
    std::uint64_t total = 0;
    Json files = Json::array();
    const auto add = [&](const std::string& name, const std::vector<TensorView>& tensors, bool pack) -> Status {
        MILLRACE_LET(entry, write_tensors(folder, name, tensors, pack));
        total += entry.bytes;
        files.push_back(json_of(entry));
        return base::ok();
    };
    for (std::size_t k = 0; k < count; ++k) {
        const std::string prefix = member_folder(k, count);
        std::error_code failure;
        if (!prefix.empty()) fs::create_directory(folder / prefix, failure);
        if (failure) return system_error("cannot create", folder / prefix, failure.value());
        MILLRACE_TRY(add(prefix + kModel, checkpoint.members[k].model, false));
        if (!checkpoint.members[k].optimizer.empty())
            MILLRACE_TRY(add(prefix + (packed ? kPackedOptimizer : kOptimizer), checkpoint.members[k].optimizer, packed));
        if (!prefix.empty()) MILLRACE_TRY(sync_folder(folder / prefix));
    }
    state["step"] = checkpoint.step;
    state["checkpoint"] = {{"format", kCheckpointFormat}, {"step", checkpoint.step}, {"members", count}, {"files", files}};
    MILLRACE_LET(written, write_state(folder, state));
    return total + written;
}

Status gather_models(const Path& folder, const Path& newest, const Path& before, const std::vector<bool>& keeps) {
    MILLRACE_LET(ours, read_state(newest));
    MILLRACE_LET(theirs, read_state(before));
    if (theirs.members != ours.members || keeps.size() != ours.members)
        return Error{fmt::format("holds {} members, the newest checkpoint {}", theirs.members, ours.members), before.string()};
    Json files = Json::array();
    for (std::size_t k = 0; k < keeps.size(); ++k) {
        const Path& source = keeps[k] ? before : newest;
        const std::string prefix = member_folder(k, keeps.size());
        const CheckpointFile* entry = find_entry(keeps[k] ? theirs : ours, prefix + kModel);
        if (entry == nullptr) return Error{fmt::format("does not list {}{}", prefix, kModel), (source / kState).string()};
        std::error_code failure;
        fs::create_directory(folder / prefix, failure);
        if (failure) return system_error("cannot create", folder / prefix, failure.value());
        MILLRACE_TRY(link_file(source / entry->path, folder / entry->path));
        MILLRACE_TRY(sync_folder(folder / prefix));
        files.push_back(json_of(*entry));
    }
    Json state = base::ordered_json_or_throw(ours.text);
    state["checkpoint"]["files"] = std::move(files);
    MILLRACE_TRY(write_state(folder, state));
    return base::ok();
}

Result<LoadedCheckpoint> read_checkpoint_files(const Path& folder, LoadParts parts) {
    MILLRACE_LET(state, read_state(folder));
    LoadedCheckpoint loaded{state.step, state.text, {}, folder};
    for (std::size_t k = 0; k < state.members; ++k) {
        const std::string prefix = member_folder(k, state.members);
        // Names are ours, never taken from the file: a hostile state.json cannot point elsewhere.
        const CheckpointFile* model = find_entry(state, prefix + kModel);
        if (model == nullptr) return Error{fmt::format("does not list {}{}", prefix, kModel), (folder / kState).string()};
        const bool in_place = k < kMostInPlace;
        MILLRACE_LET(weights, read_tensors(folder, *model, in_place));
        LoadedMember member{std::move(weights), std::nullopt};
        const CheckpointFile* plain = find_entry(state, prefix + kOptimizer);
        const CheckpointFile* optimizer = plain != nullptr ? plain : find_entry(state, prefix + kPackedOptimizer);
        if (optimizer != nullptr && parts == LoadParts::kAll)
            MILLRACE_SET(member.optimizer, read_tensors(folder, *optimizer, in_place));
        loaded.members.push_back(std::move(member));
    }
    return loaded;
}

}  // namespace millrace::io
