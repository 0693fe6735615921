#include "base/json.h"
#include "data/makers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "data/images/image_set.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

constexpr std::uint32_t kChunk = 1000;  // images between two reports of progress

LabeledImages draw_images(const GarmentsOptions& options, std::uint32_t base, std::uint32_t count,
                          const std::function<void(std::uint32_t)>& drawn) {
    LabeledImages images{count, kGarmentSide, kGarmentSide, {}, {}};
    images.pixels.resize(std::size_t{count} * kGarmentPixels);
    images.labels.resize(count);
    ops::cpu::ThreadPool pool(0);
    for (std::uint32_t start = 0; start < count; start += kChunk) {
        const std::uint32_t end = std::min(count, start + kChunk);
        pool.for_each(static_cast<int>(end - start), [&](int task, int) {
            const std::uint32_t i = start + static_cast<std::uint32_t>(task);
            std::uint8_t* pixels = images.pixels.data() + std::size_t{i} * kGarmentPixels;
            draw_garment(options.seed, base + i, std::span<std::uint8_t, kGarmentPixels>(pixels, kGarmentPixels));
            images.labels[i] = garment_label(base + i);
        });
        if (drawn) drawn(end);
    }
    return images;
}

nlohmann::ordered_json identity(const GarmentsOptions& options) {
    return {{"generator", "garments-1"}, {"seed", options.seed}, {"train", options.train}, {"test", options.test}};
}

/// Whether the folder holds this very set, by its description and the sizes of its files; an error when it is described as
/// another. Files without a description are what an interrupted run leaves: they are compared when they are about to be written.
Result<bool> already_there(const Path& folder, const GarmentsOptions& options) {
    std::error_code missing;
    if (!std::filesystem::exists(folder / kDescription, missing)) return false;
    MILLRACE_LET(text, io::read_text(folder / kDescription));
    const auto json = base::json_from(text);
    if (!json.is_object() || !json.contains("made") || json["made"] != nlohmann::json(identity(options)))
        return foreign_set(folder / kDescription);
    const auto has_size = [&](const char* name, std::uintmax_t size) {
        return std::filesystem::file_size(folder / name, missing) == size;
    };
    return has_size(kTrainImages, 16 + std::uintmax_t{options.train} * kGarmentPixels) &&
           has_size(kTrainLabels, 8 + std::uintmax_t{options.train}) &&
           has_size(kTestImages, 16 + std::uintmax_t{options.test} * kGarmentPixels) &&
           has_size(kTestLabels, 8 + std::uintmax_t{options.test});
}

Status write_unless_foreign(const Path& path, std::span<const std::uint32_t> shape, std::span<const std::uint8_t> values) {
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) return write_idx(path, shape, values);
    const auto old = read_idx(path);
    return old.ok() && std::ranges::equal(old->values, values) ? base::ok() : foreign_set(path);
}

Status write_images(const Path& images_path, const Path& labels_path, const LabeledImages& images) {
    MILLRACE_TRY(write_unless_foreign(images_path, std::array{images.count, images.rows, images.columns}, images.pixels));
    return write_unless_foreign(labels_path, std::array{images.count}, images.labels);
}

Status write_description(const Path& path, const GarmentsOptions& options, const PixelStatistics& pixels) {
    const nlohmann::ordered_json json{{"name", "garments"},
                                      {"mean", pixels.mean},
                                      {"std", pixels.deviation},
                                      {"classes", kGarmentClasses},
                                      {"made", identity(options)}};
    MILLRACE_TRY(io::write_atomically(path, base::json_text(json, 2) + "\n"));
    return base::ok();
}

}  // namespace

Result<MakeOutcome> make_garments(const Path& folder, const GarmentsOptions& options, const CommandProgress& progress) {
    if (options.train == 0 || options.test == 0)
        return Error{"garments needs at least one image for training and one for testing"};
    if (options.train >= kGarmentTestBase || options.test >= kGarmentTestBase)
        return Error{fmt::format("garments makes fewer than {} images", kGarmentTestBase)};
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return io::system_error("cannot create the folder", folder, failure.value());
    MILLRACE_LET(complete, already_there(folder, options));
    if (complete) return MakeOutcome::kAlreadyThere;

    const std::uint64_t total = std::uint64_t{options.train} + options.test;
    const auto report = [&](std::uint64_t done) {
        if (progress) progress(done, total);
    };
    const LabeledImages train = draw_images(options, 0, options.train, report);
    const LabeledImages test =
        draw_images(options, kGarmentTestBase, options.test, [&](std::uint32_t done) { report(options.train + done); });
    const PixelStatistics pixels = measure_pixels(train, split_validation(options.train).training);
    MILLRACE_TRY(write_images(folder / kTrainImages, folder / kTrainLabels, train));
    MILLRACE_TRY(write_images(folder / kTestImages, folder / kTestLabels, test));
    MILLRACE_TRY(write_description(folder / kDescription, options, pixels));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
