#include "data/pictures/decoded.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/live_lines.h"
#include "base/log.h"
#include "io/checksum.h"
#include "io/safetensors.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPictureCap = std::size_t{1} << 30;
constexpr int kPicturesAtOnce = 256;                     // between two lines of progress
constexpr std::chrono::milliseconds kBetweenLooks{100};  // at another process that decodes
constexpr int kFormatVersion = 1;                        // of the kept file: what decoding gives

std::string kept_name(const std::vector<PictureFile>& files, const DecodeSettings& settings) {
    io::Checksum64 sum;
    const auto add = [&](const std::string& text) { sum.update(io::bytes_of(text)); };
    add(fmt::format("{} {} {} {} {}\n", kFormatVersion, settings.frame.width, settings.frame.height,
                    static_cast<int>(settings.resize), settings.channels));
    for (const PictureFile& file : files) add(fmt::format("{}\n{} {}\n", file.name, file.bytes, file.modified));
    return fmt::format("pictures-{:016x}.safetensors", sum.value());
}

/// Where rows may be kept, the best place first.
std::vector<Path> cache_folders(const Path& root) {
    std::vector<Path> folders{root / ".millrace"};
    const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
    if (cache != nullptr && *cache == '/')
        folders.push_back(Path(cache) / "millrace");
    else if (home != nullptr && *home == '/')
        folders.push_back(Path(home) / ".cache" / "millrace");
    return folders;
}

/// Calls body(i) for every i in [0, count), on all processors, in pieces: `told` after each.
template <class Body>
void for_each_picture(std::size_t count, const std::function<void(std::size_t done)>& told, Body&& body) {
    ops::cpu::ThreadPool pool(0);
    for (std::size_t first = 0; first < count; first += kPicturesAtOnce) {
        const auto tasks = static_cast<int>(std::min<std::size_t>(kPicturesAtOnce, count - first));
        pool.for_each(tasks, [&](int task, int) { body(first + static_cast<std::size_t>(task)); });
        if (told) told(first + static_cast<std::size_t>(tasks));
    }
}

Status decode_one(const PictureFile& file, const DecodeSettings& settings, std::span<std::uint8_t> row) {
    MILLRACE_LET(bytes, io::read_file(file.path, kPictureCap));
    MILLRACE_LET(head, io::picture_head(bytes, file.path));
    if (head.width == 0 || head.height == 0) return Error{"has no pixels", file.path.string()};
    const PictureSide least = scaled_size(head.width, head.height, settings.frame, settings.resize);
    MILLRACE_LET(picture, io::decode_picture(bytes, file.path, settings.channels, least.width, least.height));
    place_picture(picture, settings.frame, settings.resize, row);
    return base::ok();
}

struct Decoded {
    std::vector<std::uint8_t> rows;
    std::map<std::size_t, std::string> unreadable;
};

Decoded decode_all(const std::vector<PictureFile>& files, const DecodeSettings& settings) {
    const std::size_t width = std::size_t{settings.frame.width} * settings.frame.height * settings.channels;
    Decoded decoded{std::vector<std::uint8_t>(files.size() * width), {}};
    std::vector<std::string> reasons(files.size());
    base::LiveLines line(base::stderr_is_terminal());
    const auto told = [&](std::size_t done) { line.draw(fmt::format("{} of {} pictures decoded", done, files.size())); };
    for_each_picture(files.size(), told, [&](std::size_t i) {
        const base::Status status = decode_one(files[i], settings, std::span(decoded.rows).subspan(i * width, width));
        if (!status.ok()) reasons[i] = status.error().message;
    });
    for (std::size_t i = 0; i < reasons.size(); ++i)
        if (!reasons[i].empty()) decoded.unreadable[i] = std::move(reasons[i]);
    return decoded;
}

Result<DecodedPictures> load_kept(const Path& path, std::size_t bytes) {
    MILLRACE_LET(opened, io::SafetensorsFile::open(path));
    auto file = std::make_shared<const io::SafetensorsFile>(std::move(opened));
    const io::TensorView* rows = file->find("pixels");
    if (rows == nullptr || rows->type != io::ElementType::kU8 || rows->bytes != bytes)
        return Error{"is not what decoding these pictures gives; remove it", path.string()};
    DecodedPictures decoded{{reinterpret_cast<const std::uint8_t*>(rows->data), rows->bytes}, file, {}};
    for (const auto& [key, reason] : file->metadata()) {
        std::size_t number = 0;
        const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), number);
        if (failure == std::errc{} && end == key.data() + key.size()) decoded.unreadable[number] = reason;
    }
    return decoded;
}

Status keep(const Path& path, const Decoded& decoded, std::size_t files) {
    const io::TensorView rows{"pixels",
                              io::ElementType::kU8,
                              {static_cast<std::int64_t>(files), static_cast<std::int64_t>(decoded.rows.size() / files)},
                              reinterpret_cast<const std::byte*>(decoded.rows.data()),
                              decoded.rows.size()};
    io::Metadata metadata;
    for (const auto& [number, reason] : decoded.unreadable) metadata[std::to_string(number)] = reason;
    const auto written = io::write_atomically(path, [&](io::FileWriter& writer) -> Status {
        const auto done = io::write_safetensors(writer, std::span(&rows, 1), metadata, path);
        return done.ok() ? base::ok() : Status(done.error());
    });
    return written.ok() ? base::ok() : Status(written.error());
}

bool is_kept(const Path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

Path lock_path(const Path& path) { return Path(path) += ".lock"; }

/// Waits for a process that has it.
Result<io::FileDescriptor> lock_of(const Path& path) {
    std::error_code failure;
    fs::create_directories(path.parent_path(), failure);
    if (failure) return io::system_error("cannot create the folder", path.parent_path(), failure.value());
    for (;; std::this_thread::sleep_for(kBetweenLooks)) {
        MILLRACE_LET(lock, io::try_lock(lock_path(path)));
        if (lock) return std::move(*lock);
    }
}

}  // namespace

std::vector<io::PictureHead> read_heads(const std::vector<PictureFile>& files) {
    std::vector<io::PictureHead> heads(files.size());
    base::LiveLines line(base::stderr_is_terminal());
    const auto told = [&](std::size_t done) { line.draw(fmt::format("{} of {} pictures looked at", done, files.size())); };
    for_each_picture(files.size(), told, [&](std::size_t i) {
        const auto bytes = io::read_file(files[i].path, kPictureCap);
        if (!bytes.ok()) return;
        const auto head = io::picture_head(*bytes, files[i].path);
        if (head.ok()) heads[i] = *head;
    });
    return heads;
}

Result<DecodedPictures> decode_pictures(const Path& root, const std::vector<PictureFile>& files, const DecodeSettings& settings) {
    if (!io::can_read_pictures()) return io::picture_head({}, root).error();
    const std::string name = kept_name(files, settings);
    const std::size_t bytes = files.size() * std::size_t{settings.frame.width} * settings.frame.height * settings.channels;
    Path path;
    Result<io::FileDescriptor> lock = Error{"there is no folder to keep decoded pictures in", root.string()};
    for (const Path& folder : cache_folders(root)) {
        path = folder / name;
        if (is_kept(path)) return load_kept(path, bytes);
        lock = lock_of(path);
        if (lock.ok()) break;
    }
    if (lock.ok() && is_kept(path)) return load_kept(path, bytes);  // another process was faster
    MILLRACE_LOG(info, "decoding {} pictures{}", files.size(), lock.ok() ? " into " + path.string() : "");
    Decoded decoded = decode_all(files, settings);
    const Status kept = lock.ok() ? keep(path, decoded, files.size()) : Status(lock.error());
    std::error_code ignored;
    if (lock.ok()) fs::remove(lock_path(path), ignored);
    if (kept.ok()) return load_kept(path, bytes);
    MILLRACE_LOG(warn, "{}\nthe pictures are decoded again next time", kept.error().text());
    auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(decoded.rows));
    return DecodedPictures{*owner, owner, std::move(decoded.unreadable)};
}

}  // namespace millrace::data
