#include "data/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "base/log.h"
#include "data/pictures/pictures.h"
#include "io/table_file.h"

namespace millrace::data {
namespace {

constexpr std::int32_t kMostSide = 4096, kUsualSide = 64;
constexpr std::uint64_t kMostOwnPixels = 16'384;
constexpr std::size_t kMostNamed = 5;

/// Sets shape and resize by the checkpoint, the recipe or else the files.
Status choose_frame(const SampleRequest& request, const std::vector<ClassFile>& files, SampleSet& set) {
    Shape& shape = set.preparation.shape;
    set.preparation.resize = request.stored != nullptr ? request.stored->resize : request.resize;
    if (request.stored != nullptr) shape = request.stored->shape;
    if (request.stored != nullptr) return base::ok();
    const bool sized = !request.size.empty();
    if (sized) MILLRACE_SET(std::tie(shape.width, shape.height), parse_size(request.size));
    shape.channels = request.colour == "grey" ? 1 : 3;
    if (sized && request.colour != "auto") return base::ok();
    std::vector<io::PictureHead> heads = read_heads(files, sized);
    std::erase_if(heads, [](const io::PictureHead& head) { return head.width == 0; });
    if (request.colour == "auto") shape.channels = std::ranges::any_of(heads, &io::PictureHead::colour) ? 3 : 1;
    if (sized || heads.empty()) return base::ok();
    const io::PictureHead& own = heads.front();
    const bool same = std::ranges::all_of(
        heads, [&](const io::PictureHead& head) { return head.width == own.width && head.height == own.height; });
    if (same && std::uint64_t{own.width} * own.height <= kMostOwnPixels) {
        shape.width = static_cast<std::int32_t>(own.width);
        shape.height = static_cast<std::int32_t>(own.height);
    } else {
        shape.width = shape.height = kUsualSide;
        set.notes.push_back(fmt::format("pictures of {} are taken at {} x {} ({}); data.size = \"32x32\" asks for another size",
                                        same ? fmt::format("{} x {}", own.width, own.height) : "several sizes", kUsualSide,
                                        kUsualSide, request.resize));
    }
    return base::ok();
}

/// Takes what cannot be read out of the parts.
Status leave_out(const std::vector<ClassFile>& files, const std::map<std::size_t, std::string>& unreadable,
                 const std::string& place, SampleSet& set) {
    if (unreadable.empty()) return base::ok();
    std::string list = fmt::format("{} of {} pictures cannot be read", unreadable.size(), files.size()), lines;
    std::size_t named = 0;
    for (const auto& [file, reason] : unreadable)
        if (file < files.size() && named++ < kMostNamed) lines += fmt::format("\n  {} {}", files[file].name, reason);
    if (unreadable.size() > kMostNamed) lines += fmt::format("\n  and {} more", unreadable.size() - kMostNamed);
    if (unreadable.size() * 100 > files.size())
        return Error{fmt::format("{}, which is more than 1 %; remove or repair them{}", list, lines), place};
    MILLRACE_LOG(warn, "{} and are left out{}", list, lines);
    set.notes.push_back(list + " and are left out");
    for (std::vector<std::int32_t>& part : set.parts)
        std::erase_if(part, [&](std::int32_t sample) { return unreadable.contains(static_cast<std::size_t>(sample)); });
    return base::ok();
}

/// Answers from the table beside the pictures.
Status set_listed(const SampleRequest& request, const PictureFolder& found, SampleSet& set) {
    MILLRACE_LET(table, io::read_table(found.labels));
    if (table.names.size() < 2) return Error{"has one column; file and label would be right", found.labels.string()};
    const std::string wanted = request.stored != nullptr ? request.stored->answer : request.target;
    const auto at = wanted.empty() ? table.names.begin() + 1 : std::ranges::find(table.names, wanted);
    if (at == table.names.end())
        return Error{fmt::format("has no column \"{}\", which data.target names", wanted), found.labels.string()};
    const auto column = static_cast<std::size_t>(at - table.names.begin());
    std::map<std::string_view, std::string_view> answer;
    for (std::size_t row = 0; row < table.rows(); ++row) answer[table.at(row, 0)] = table.at(row, column);
    std::vector<std::string_view> cells;
    for (const ClassFile& file : found.files) {
        auto listed = answer.find(file.name);
        if (listed == answer.end()) listed = answer.find(std::string_view(file.name).substr(0, file.name.rfind('.')));
        cells.push_back(listed == answer.end() ? std::string_view() : listed->second);
    }
    return set_answers(set, *at, cells, request);
}

Status set_folders(const SampleRequest& request, const PictureFolder& found, SampleSet& set) {
    Preparation& prepared = set.preparation;
    prepared.class_names = request.stored != nullptr ? request.stored->class_names : found.classes;
    prepared.classes = static_cast<std::int32_t>(prepared.class_names.size());
    if (prepared.classes < 2)
        return Error{fmt::format("holds pictures of {} class; folders for two at least would be right", prepared.classes),
                     request.path.string()};
    MILLRACE_LET(numbers, number_classes(found.classes, prepared, request.path.string()));
    for (const ClassFile& file : found.files) set.labels.push_back(numbers[file.label]);
    return base::ok();
}

}  // namespace

Result<std::pair<std::int32_t, std::int32_t>> parse_size(const std::string& text) {
    std::pair<std::int32_t, std::int32_t> size;
    const char* end = text.data() + text.size();
    const auto width = std::from_chars(text.data(), end, size.first);
    const bool cross = width.ec == std::errc{} && width.ptr != end && *width.ptr == 'x';
    const auto height = cross ? std::from_chars(width.ptr + 1, end, size.second) : width;
    const auto fine = [](std::int32_t side) { return side >= 1 && side <= kMostSide; };
    if (!cross || height.ec != std::errc{} || height.ptr != end || !fine(size.first) || !fine(size.second))
        return Error{
            fmt::format("data.size = \"{}\"; width x height such as \"32x32\", 1 to {} each, would be right", text, kMostSide)};
    return size;
}

Result<Inputs> open_pictures(const std::vector<Path>& paths, const Preparation& prepared) {
    if (!io::can_read_pictures()) return io::picture_head({}, paths.front()).error();
    std::vector<ClassFile> files;
    Inputs inputs{"pictures"};
    for (const Path& path : paths) {
        files.push_back({path, path.string()});
        inputs.names.push_back(path.string());
    }
    inputs.count = static_cast<std::int64_t>(files.size());
    inputs.read = [files = std::move(files), prepared](std::int64_t first, std::int64_t count) {
        return decode_rows(std::span(files).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), prepared,
                           false);
    };
    return inputs;
}

Result<SampleSet> load_picture_set(const SampleRequest& request) {
    MILLRACE_LET(found, find_pictures(request));
    SampleSet set;
    set.name = folder_name(request.path);
    set.unit = "pictures";
    set.count = static_cast<std::int32_t>(found.files.size());
    for (std::size_t i = 0; i < found.files.size(); ++i) set.part(found.files[i].part).push_back(static_cast<std::int32_t>(i));
    if (!found.skipped.empty())
        set.notes.push_back(fmt::format("{} files are passed over, such as {}, which {}", found.skipped.size(),
                                        found.skipped.front().name, found.skipped.front().reason));
    Preparation& prepared = set.preparation;
    MILLRACE_TRY(choose_frame(request, found.files, set));
    MILLRACE_LET(decoded, decode_pictures(request.path, found.files, prepared));
    set.bytes = std::move(decoded.rows);
    set.reader = std::move(decoded.reader);
    set.width = static_cast<std::int32_t>(prepared.shape.size());
    MILLRACE_TRY(leave_out(found.files, decoded.unreadable, request.path.string(), set));
    MILLRACE_TRY(found.labels.empty() ? set_folders(request, found, set) : set_listed(request, found, set));
    if (request.stored != nullptr)
        prepared.mean = request.stored->mean, prepared.deviation = request.stored->deviation;
    else
        MILLRACE_TRY(measure_channels(set));
    MILLRACE_TRY(sum_up(set));
    return set;
}

}  // namespace millrace::data
