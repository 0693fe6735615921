#include "data/recordings/streamed_recordings.h"

#include "data/recordings/feature_file.h"
#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

StreamedSet::Rows rows_of(const std::shared_ptr<const RecordingSet>& set, Part part) {
    const auto windows = static_cast<std::uint32_t>(set->windows);
    StreamedSet::Rows rows{static_cast<std::uint64_t>(set->part(part).count) * windows};
    if (rows.count == 0) return rows;
    rows.together = set->file(part)->together() * windows;
    rows.inputs = [file = set->file(part), windows](std::uint32_t first, std::span<std::byte> inputs) {
        const std::span features(reinterpret_cast<std::uint16_t*>(inputs.data()), inputs.size() / sizeof(std::uint16_t));
        return file->read(first / windows, features.size() / file->values(), features);
    };
    rows.answer = [set, part, windows](std::uint32_t row) {
        return static_cast<std::uint32_t>(set->part(part).labels[row / windows]);
    };
    return rows;
}

}  // namespace

StreamedSet streamed(const std::shared_ptr<const RecordingSet>& set, std::int32_t mask) {
    StreamedSet made{.name = set->name, .unit = "segments", .fields = fields_of(*set), .input = tensor::DType::f16};
    for (const Part part : kAllParts) made.parts[index_of(part)] = rows_of(set, part);
    const auto scaling = std::make_shared<ScalingViews>();
    made.declare = [set, scaling](tape::Store& store) { scaling->declare(store, set->width); };
    made.upload = [set, scaling](tape::Store& store) { scaling->upload(store, *set->scaling); };
    made.gather = [set, scaling, mask](tape::Builder& builder, Part part, const StreamedTables& from, std::int32_t rows,
                                       std::span<const Wanted> wanted) {
        ops::GatherFeaturesParams params;
        params.samples = static_cast<std::uint32_t>(set->part(part).count * set->windows);
        params.op_number = builder.next_op_number();
        params.training = params.shuffle = builder.training();
        params.window = from.window;
        if (builder.training()) params.mask = static_cast<std::uint32_t>(mask);
        return append_gather(builder, params, {from.inputs, from.answers, scaling->mean, scaling->inverse, {}}, rows, wanted);
    };
    return made;
}

}  // namespace millrace::data
