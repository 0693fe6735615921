#include "data/pictures/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "io/checksum.h"
#include "io/safetensors.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPictureCap = std::size_t{1} << 30;
constexpr std::size_t kHeadReach = std::size_t{16} << 10;  // a head is longer only where a preview stands before it
constexpr std::size_t kPicturesAtOnce = 256;               // between two lines of progress
constexpr std::size_t kBytesAtOnce = 64 << 20;             // of their rows
constexpr std::chrono::milliseconds kBetweenLooks{100};    // at another process that decodes
constexpr int kFormatVersion = 2;                          // of the kept file: what decoding gives

Resize resize_of(const Preparation& prepared) { return prepared.resize == "crop" ? Resize::crop : Resize::fit; }

std::string kept_name(const std::vector<ClassFile>& files, const Preparation& prepared) {
    io::Checksum64 sum;
    const auto add = [&](const std::string& text) { sum.update(io::bytes_of(text)); };
    add(fmt::format("{} {} {} {} {}\n", kFormatVersion, prepared.shape.width, prepared.shape.height,
                    static_cast<int>(resize_of(prepared)), prepared.shape.channels));
    for (const ClassFile& file : files) add(fmt::format("{}\n{} {}\n", file.name, file.bytes, file.modified));
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
Status for_each_picture(std::size_t count, std::size_t at_once,
                        const std::function<Status(std::size_t first, std::size_t done)>& told, Body&& body) {
    ops::cpu::ThreadPool pool(0);
    for (std::size_t first = 0; first < count; first += at_once) {
        const auto tasks = static_cast<int>(std::min(at_once, count - first));
        pool.for_each(tasks, [&](int task, int) { body(first + static_cast<std::size_t>(task)); });
        MILLRACE_TRY(told(first, first + static_cast<std::size_t>(tasks)));
    }
    return base::ok();
}

Status decode_one(const ClassFile& file, const Preparation& prepared, std::span<std::uint8_t> row) {
    MILLRACE_LET(bytes, io::read_file(file.path, kPictureCap));
    MILLRACE_LET(head, io::picture_head(bytes, file.path));
    if (head.width == 0 || head.height == 0) return Error{"has no pixels", file.path.string()};
    const PictureSide frame{static_cast<std::uint32_t>(prepared.shape.width), static_cast<std::uint32_t>(prepared.shape.height)};
    const PictureSide least = scaled_size(head.width, head.height, frame, resize_of(prepared));
    const auto channels = static_cast<std::uint32_t>(prepared.shape.channels);
    MILLRACE_LET(picture, io::decode_picture(bytes, file.path, channels, least.width, least.height));
    place_picture(picture, frame, resize_of(prepared), row);
    return base::ok();
}

/// By the first bytes of a file; by all of them where these do not say it.
Result<io::PictureHead> head_of(const Path& path) {
    MILLRACE_LET(opened, io::open_regular(path));
    std::vector<std::byte> bytes(std::min<std::uint64_t>(opened.size, kHeadReach));
    MILLRACE_TRY(io::read_exactly(opened.file, bytes, 0, path));
    auto head = io::picture_head(bytes, path);
    if (head.ok() || bytes.size() == opened.size) return head;
    MILLRACE_SET(bytes, io::read_file(path, kPictureCap));
    return io::picture_head(bytes, path);
}

using PourRows = std::function<Status(std::span<const std::uint8_t> rows)>;

/// Pours the rows of all files, some at a time. Gives the reason for each that cannot be read, empty for the others. `live`: with
/// a line of progress on a terminal.
Result<std::vector<std::string>> decode_all(std::span<const ClassFile> files, const Preparation& prepared, const PourRows& pour,
                                            bool live = true) {
    const std::size_t width = prepared.width(),
                      at_once = std::clamp<std::size_t>(kBytesAtOnce / std::max<std::size_t>(1, width), 1, kPicturesAtOnce);
    std::vector<std::uint8_t> rows(at_once * width);
    std::vector<std::string> reasons(files.size());
    base::LiveLines line(live && base::stderr_is_terminal());
    const auto told = [&](std::size_t first, std::size_t done) {
        line.draw(fmt::format("{} of {} pictures decoded", done, files.size()));
        return pour(std::span(rows).first((done - first) * width));
    };
    MILLRACE_TRY(for_each_picture(files.size(), at_once, told, [&](std::size_t i) {
        const std::span row = std::span(rows).subspan(i % at_once * width, width);
        const Status status = decode_one(files[i], prepared, row);
        if (status.ok()) return;
        std::ranges::fill(row, 0);
        reasons[i] = status.error().message;
    }));
    return reasons;
}

Result<DecodedPictures> load_kept(const Path& path, const std::vector<ClassFile>& files, const Preparation& prepared) {
    MILLRACE_LET(regular, io::open_regular(path));
    MILLRACE_LET(opened, io::SafetensorsFile::open_in_place(std::move(regular), path));
    const auto file = std::make_shared<const io::SafetensorsFile>(std::move(opened));
    const io::TensorView *rows = file->find("pixels"), *failed = file->find("unreadable");
    const std::size_t width = prepared.width();
    for (const auto& [tensor, bytes] : {std::pair(rows, files.size() * width), std::pair(failed, files.size())})
        if (tensor == nullptr || tensor->type != io::ElementType::kU8 || tensor->bytes != bytes)
            return Error{"is not what decoding these pictures gives; remove it", path.string()};
    DecodedPictures decoded;
    decoded.reader = [file, rows, width](std::int32_t first, std::span<std::byte> inputs) {
        return file->read(*rows, static_cast<std::size_t>(first) * width, inputs);
    };
    MILLRACE_LET(marks, file->read(*failed));
    std::vector<std::uint8_t> row(width);
    for (std::size_t i = 0; i < marks.size(); ++i) {
        if (marks[i] == std::byte{0}) continue;
        const Status again = decode_one(files[i], prepared, row);
        decoded.unreadable[i] = again.ok() ? "could not be read when it was decoded" : again.error().message;
    }
    return decoded;
}

Status keep(const Path& path, const std::vector<ClassFile>& files, const Preparation& prepared) {
    const auto count = static_cast<std::int64_t>(files.size()), width = static_cast<std::int64_t>(prepared.width());
    std::vector<std::byte> marks(files.size());  // they follow the rows, when they are known
    const auto pour = [&](io::ByteSink& sink) -> Status {
        const PourRows write = [&](std::span<const std::uint8_t> rows) { return sink.write(std::as_bytes(rows)); };
        MILLRACE_LET(reasons, decode_all(files, prepared, write));
        std::ranges::transform(reasons, marks.begin(), [](const std::string& reason) { return std::byte{!reason.empty()}; });
        return base::ok();
    };
    const io::TensorView tensors[] = {
        {"pixels", io::ElementType::kU8, {count, width}, nullptr, static_cast<std::size_t>(count * width), pour},
        {"unreadable", io::ElementType::kU8, {count}, marks.data(), marks.size()}};
    const auto fill = [&](io::FileWriter& writer) -> Status {
        MILLRACE_TRY(io::write_safetensors(writer, tensors, {}, path));
        return base::ok();
    };
    MILLRACE_TRY(io::write_atomically(path, fill));
    return base::ok();
}

bool is_kept(const Path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

Path lock_path(const Path& path) { return Path(path) += ".lock"; }

/// Waits for a process that has it.
Result<io::FileDescriptor> lock_of(const Path& path) {
    MILLRACE_TRY(io::make_folder(path.parent_path()));
    for (;; std::this_thread::sleep_for(kBetweenLooks)) {
        MILLRACE_LET(lock, io::try_lock(lock_path(path)));
        if (lock) return std::move(*lock);
    }
}

}  // namespace

Result<InputRows> decode_rows(std::span<const ClassFile> files, const Preparation& prepared, bool live) {
    InputRows decoded;
    const PourRows add = [&](std::span<const std::uint8_t> rows) {
        decoded.bytes.insert(decoded.bytes.end(), rows.begin(), rows.end());
        return base::ok();
    };
    MILLRACE_LET(reasons, decode_all(files, prepared, add, live));
    for (std::size_t i = 0; i < reasons.size(); ++i)
        if (!reasons[i].empty()) decoded.unreadable[i] = std::move(reasons[i]);
    return decoded;
}

std::vector<io::PictureHead> read_heads(const std::vector<ClassFile>& files, bool until_colour) {
    std::vector<io::PictureHead> heads(files.size());
    base::LiveLines line(base::stderr_is_terminal());
    const auto told = [&](std::size_t first, std::size_t done) {
        line.draw(fmt::format("{} of {} pictures looked at", done, files.size()));
        const auto begin = heads.begin() + static_cast<std::ptrdiff_t>(first);
        const bool enough = until_colour && std::any_of(begin, heads.end(), [](const auto& head) { return head.colour; });
        return enough ? Status(Error{}) : base::ok();
    };
    (void)for_each_picture(files.size(), kPicturesAtOnce, told, [&](std::size_t i) {
        if (const auto head = head_of(files[i].path); head.ok()) heads[i] = *head;
    });
    return heads;
}

Result<DecodedPictures> decode_pictures(const Path& root, const std::vector<ClassFile>& files, const Preparation& prepared) {
    if (!io::can_read_pictures()) return io::picture_head({}, root).error();
    const std::string name = kept_name(files, prepared);
    Path path;
    Result<io::FileDescriptor> lock = Error{"there is no folder to keep decoded pictures in", root.string()};
    for (const Path& folder : cache_folders(root)) {
        path = folder / name;
        if (is_kept(path)) return load_kept(path, files, prepared);
        lock = lock_of(path);
        if (lock.ok()) break;
    }
    if (lock.ok() && is_kept(path)) return load_kept(path, files, prepared);  // another process was faster
    MILLRACE_LOG(info, "decoding {} pictures{}", files.size(), lock.ok() ? " into " + path.string() : "");
    const Status kept = lock.ok() ? keep(path, files, prepared) : Status(lock.error());
    std::error_code ignored;
    if (lock.ok()) fs::remove(lock_path(path), ignored);
    if (kept.ok()) return load_kept(path, files, prepared);
    MILLRACE_LOG(warn, "{}\nthe pictures are kept in memory and decoded again next time", kept.error().text());
    MILLRACE_LET(rows, decode_rows(files, prepared, true));
    DecodedPictures decoded;
    decoded.rows = std::move(rows.bytes);
    decoded.unreadable = std::move(rows.unreadable);
    return decoded;
}

}  // namespace millrace::data
