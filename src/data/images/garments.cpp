#include "data/images/garments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/philox.h"
#include "data/images/image_set.h"
#include "data/makers.h"
#include "data/sample_set.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

// Operator numbers of the generator's random streams.
constexpr std::uint32_t kShapeStream = 1;
constexpr std::uint32_t kNoiseStream = 2;
constexpr std::uint32_t kGrainStream = 3;
constexpr std::uint32_t kGarmentsMicro = 0x6761726du;

constexpr float kPixel = 2.0f / kGarmentSide;
constexpr float kSharpness = 14;  // one pixel from outside to inside

/// Uniform draws one after another, the same for every machine.
class Draws {
public:
    Draws(std::uint64_t seed, std::uint32_t index) : seed_(seed), index_(index) {}
    float operator()(float low, float high) {
        return low + (high - low) * base::uniform01(base::random_bits(seed_, index_, kGarmentsMicro, kShapeStream, element_++));
    }

private:
    std::uint64_t seed_;
    std::uint32_t index_;
    std::uint64_t element_ = 0;
};

/// How the figure lies on the canvas: canvas = shift + scale * rotation * figure.
struct Pose {
    float cosine, sine, scale, shift_x, shift_y;

    [[nodiscard]] Point to_figure(Point canvas) const {
        const float x = (canvas.x - shift_x) / scale, y = (canvas.y - shift_y) / scale;
        return {cosine * x + sine * y, cosine * y - sine * x};
    }
};

struct Cloth {
    float luminance, grain, stripe_depth, stripe_frequency, stripe_phase, noise;
    bool stripes_along_x;

    [[nodiscard]] float stripe(Point at) const {
        if (stripe_depth == 0) return 1;
        const double angle = (stripes_along_x ? at.x : at.y) * stripe_frequency + stripe_phase;
        return 1 - stripe_depth * (0.5f + 0.5f * static_cast<float>(std::sin(angle)));
    }
};

Cut draw_cut(Draws& draw) {
    Cut cut;
    cut.half_width = draw(0.34f, 0.56f);
    cut.flare = draw(0.85f, 1.2f);
    cut.hem = draw(0.55f, 0.85f);
    cut.sleeve = draw(0.10f, 0.16f);
    cut.neck = draw(0.10f, 0.22f);
    for (float& value : cut.free) value = draw(0, 1);
    for (float& value : cut.chance) value = draw(0, 1);
    return cut;
}

Pose draw_pose(Draws& draw) {
    const double angle = draw(-12, 12) * (3.14159265358979323846 / 180);
    Pose pose{static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle)), 1, 0, 0};
    pose.scale = draw(0.90f, 1.08f);
    pose.shift_x = draw(-0.18f, 0.18f);
    pose.shift_y = draw(-0.16f, 0.16f);
    return pose;
}

Cloth draw_cloth(Draws& draw) {
    Cloth cloth{};
    cloth.luminance = draw(0.35f, 1.0f);
    cloth.grain = draw(0, 0.35f);
    const bool striped = draw(0, 1) < 0.3f;
    const float depth = draw(0.1f, 0.45f);
    cloth.stripe_depth = striped ? depth : 0;
    cloth.stripe_frequency = draw(12, 30);
    cloth.stripe_phase = draw(0, 6.2831853f);
    cloth.stripes_along_x = draw(0, 1) < 0.5f;
    cloth.noise = draw(0.02f, 0.16f);
    return cloth;
}

/// Share of a pixel covered by the figure, 2 x 2 samples.
float coverage(const Figure& figure, const Pose& pose, Point canvas) {
    const auto at = [&](float dx, float dy) { return figure.distance(pose.to_figure({canvas.x + dx, canvas.y + dy})); };
    const auto covered = [](float distance) { return std::clamp(kSharpness * distance + 0.5f, 0.0f, 1.0f); };
    // The samples lie within a quarter pixel of the middle, and the distance changes no faster than the place: far from the edge
    // one look decides.
    const float middle = at(0, 0);
    constexpr float kFar = 0.5f / kSharpness + 0.36f * kPixel / 0.9f;
    if (std::abs(middle) > kFar) return middle > 0 ? 1.0f : 0.0f;
    constexpr float kQuarter = kPixel / 4;
    return 0.25f * (covered(at(-kQuarter, -kQuarter)) + covered(at(kQuarter, -kQuarter)) + covered(at(-kQuarter, kQuarter)) +
                    covered(at(kQuarter, kQuarter)));
}

constexpr std::uint32_t kChunk = 1000;  // images between two reports of progress

struct Garments {
    IdxArray images, labels;
};

Garments draw_images(const GarmentsOptions& options, std::uint32_t base, std::uint32_t count,
                     const std::function<void(std::uint32_t)>& drawn) {
    Garments set{{{count, kGarmentSide, kGarmentSide}, std::vector<std::uint8_t>(std::size_t{count} * kGarmentPixels)},
                 {{count}, std::vector<std::uint8_t>(count)}};
    ops::cpu::ThreadPool pool(0);
    for (std::uint32_t start = 0; start < count; start += kChunk) {
        const std::uint32_t end = std::min(count, start + kChunk);
        pool.for_each(static_cast<int>(end - start), [&](int task, int) {
            const std::uint32_t i = start + static_cast<std::uint32_t>(task);
            const std::span pixels = std::span(set.images.values).subspan(std::size_t{i} * kGarmentPixels);
            draw_garment(options.seed, base + i, pixels.first<kGarmentPixels>());
            set.labels.values[i] = garment_label(base + i);
        });
        drawn(end);
    }
    return set;
}

nlohmann::ordered_json identity(const GarmentsOptions& options) {
    return {{"generator", "garments-1"}, {"seed", options.seed}, {"train", options.train}, {"test", options.test}};
}

/// Whether the folder holds this very set, by its description and the sizes of its files. Files without a description are what an
/// interrupted run leaves: they are compared when they are about to be written.
Result<bool> already_there(const Path& folder, const GarmentsOptions& options) {
    MILLRACE_LET(described, made_before(folder, identity(options)));
    if (described.is_null()) return false;
    std::error_code missing;
    const auto has_size = [&](const char* name, std::uintmax_t size) {
        return std::filesystem::file_size(folder / name, missing) == size;
    };
    return has_size(kTrainImages, 16 + std::uintmax_t{options.train} * kGarmentPixels) &&
           has_size(kTrainLabels, 8 + std::uintmax_t{options.train}) &&
           has_size(kTestImages, 16 + std::uintmax_t{options.test} * kGarmentPixels) &&
           has_size(kTestLabels, 8 + std::uintmax_t{options.test});
}

Status write_unless_foreign(const Path& path, const IdxArray& array) {
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) return write_idx(path, array.shape, array.values);
    const auto old = read_idx(path);
    return old.ok() && old->values == array.values ? base::ok() : foreign_set(path);
}

/// Of the pixels that are trained on where nothing else is asked for.
Moments measure(const GarmentsOptions& options, const IdxArray& images) {
    Parts parts;
    split_samples(parts, 0, static_cast<std::int32_t>(options.train), SampleRequest{}.validation, 0, SampleRequest{}.seed);
    std::array<std::uint64_t, 256> histogram{};
    for (const std::int32_t sample : parts[index_of(Part::train)])
        for (std::size_t i = 0; i < kGarmentPixels; ++i)
            ++histogram[images.values[static_cast<std::size_t>(sample) * kGarmentPixels + i]];
    return moments_of(histogram);
}

}  // namespace

void draw_garment(std::uint64_t seed, std::uint32_t index, std::span<std::uint8_t, kGarmentPixels> pixels) {
    Draws draw(seed, index);
    const Pose pose = draw_pose(draw);
    const Cut cut = draw_cut(draw);
    const Cloth cloth = draw_cloth(draw);
    const Figure figure = tailor(garment_label(index), cut);

    for (std::uint32_t block = 0; block < kGarmentPixels / 4; ++block) {
        const base::Philox4 noise = base::random_block(seed, index, kGarmentsMicro, kNoiseStream, block);
        const base::Philox4 grain = base::random_block(seed, index, kGarmentsMicro, kGrainStream, block);
        const base::NormalPair first = base::normal_pair(noise.v[0], noise.v[1]),
                               second = base::normal_pair(noise.v[2], noise.v[3]);
        const std::array<float, 4> normal{first.first, first.second, second.first, second.second};
        for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t pixel = 4 * block + i, row = pixel / kGarmentSide, column = pixel % kGarmentSide;
            const Point canvas{(static_cast<float>(column) + 0.5f) * kPixel - 1, (static_cast<float>(row) + 0.5f) * kPixel - 1};
            float value = coverage(figure, pose, canvas);
            if (value > 0) {
                const Point at = pose.to_figure(canvas);
                value *=
                    cloth.luminance * figure.brightness(at) * cloth.stripe(at) * (1 - cloth.grain * base::uniform01(grain.v[i]));
            }
            value = std::clamp(value + cloth.noise * normal[i], 0.0f, 1.0f);
            pixels[pixel] = static_cast<std::uint8_t>(std::lround(value * 255));
        }
    }
}

Result<MakeOutcome> make_garments(const Path& folder, const GarmentsOptions& options, const CommandProgress& progress) {
    if (options.train == 0 || options.test == 0)
        return Error{"garments needs at least one image for training and one for testing"};
    if (options.train >= kGarmentTestBase || options.test >= kGarmentTestBase)
        return Error{fmt::format("garments makes fewer than {} images", kGarmentTestBase)};
    MILLRACE_TRY(io::make_folder(folder));
    MILLRACE_LET(complete, already_there(folder, options));
    if (complete) return MakeOutcome::kAlreadyThere;

    const std::uint64_t total = std::uint64_t{options.train} + options.test;
    const auto report = [&](std::uint64_t done) {
        if (progress) progress(done, total);
    };
    const Garments train = draw_images(options, 0, options.train, report);
    const Garments test =
        draw_images(options, kGarmentTestBase, options.test, [&](std::uint32_t done) { report(options.train + done); });
    MILLRACE_TRY(write_unless_foreign(folder / kTrainImages, train.images));
    MILLRACE_TRY(write_unless_foreign(folder / kTrainLabels, train.labels));
    MILLRACE_TRY(write_unless_foreign(folder / kTestImages, test.images));
    MILLRACE_TRY(write_unless_foreign(folder / kTestLabels, test.labels));
    const Moments pixels = measure(options, train.images);
    const nlohmann::ordered_json description{{"name", "garments"},
                                             {"mean", pixels.mean},
                                             {"std", pixels.deviation},
                                             {"classes", kGarmentClasses},
                                             {"made", identity(options)}};
    MILLRACE_TRY(io::write_atomically(folder / kDescription, base::json_text(description, 2) + "\n"));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
