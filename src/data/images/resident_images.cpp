#include "data/images/resident_images.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

constexpr Part kParts[] = {Part::train, Part::validation, Part::test};

base::Status check(const char* which, const LabeledImages& images) {
    if (images.count == 0) return base::Error{fmt::format("the {} set has no images", which)};
    if (images.count > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
        return base::Error{fmt::format("the {} set has {} images; at most 2^31 - 1 would be right", which, images.count)};
    return base::ok();
}

}  // namespace

ResidentImages::ResidentImages(std::shared_ptr<const ImageSet> set, Augmentation augmentation, base::Rank rank)
    : set_(std::move(set)), augmentation_(augmentation), rank_(rank) {
    fields_ = {{"image", Field::Kind::real, static_cast<std::int32_t>(set_->train.rows * set_->train.columns)},
               {"label", Field::Kind::integer, 1, static_cast<std::int32_t>(set_->classes), {}, set_->class_names}};
    order_[index_of(Part::train)].assign(set_->split.training.begin(), set_->split.training.end());
    order_[index_of(Part::validation)].assign(set_->split.validation.begin(), set_->split.validation.end());
    order_[index_of(Part::test)].resize(set_->test.count);
    std::iota(order_[index_of(Part::test)].begin(), order_[index_of(Part::test)].end(), 0);
}

base::Status ResidentImages::declare(tape::Store& store) {
    MILLRACE_TRY(check("training", set_->train));
    MILLRACE_TRY(check("test", set_->test));
    if (samples(Part::train) == 0)
        return base::Error{"all training images are held out for validation; a smaller data.validation would be right"};
    if (augmentation_.enabled && set_->train.rows != set_->train.columns)
        return base::Error{
            fmt::format("images of {} x {} cannot be augmented; data.augment = false, or square images, would be right",
                        set_->train.rows, set_->train.columns)};
    auto declare_images = [&](const std::string& name, const LabeledImages& images) {
        const auto count = static_cast<std::int32_t>(images.count);
        return Resident{store.add_data(name + " images", tensor::DType::u8, count, fields_[0].width),
                        store.add_data(name + " labels", tensor::DType::u8, count, 1)};
    };
    train_ = declare_images("training", set_->train);
    test_ = declare_images("test", set_->test);
    for (Part part : kParts)
        subset_[index_of(part)] = store.add_data(fmt::format("{} order", name_of(part)), tensor::DType::i32, whole(part), 1);
    return base::ok();
}

base::Status ResidentImages::upload(tape::Store& store) {
    for (Part part : {Part::train, Part::test}) {
        const LabeledImages& images = images_of(part);
        store.write(resident_of(part).images, images.pixels.data(), images.pixels.size());
        store.write(resident_of(part).labels, images.labels.data(), images.labels.size());
    }
    for (Part part : kParts) {
        const std::vector<std::int32_t>& order = order_[index_of(part)];
        if (!order.empty()) store.write(subset_[index_of(part)], order.data(), order.size() * sizeof(std::int32_t));
    }
    return store.backend().check();
}

std::vector<tensor::View> ResidentImages::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                 std::span<const Wanted> fields) {
    namespace slot = ops::gather_images;
    ops::GatherImagesParams params;
    params.samples = static_cast<std::uint32_t>(whole(part));
    params.rank = rank_of(part);
    params.op_number = builder.next_op_number();
    params.training = params.shuffle = builder.training();
    params.augment = builder.training() && augmentation_.enabled;
    params.mean = static_cast<float>(set_->pixels.mean);
    params.std = static_cast<float>(set_->pixels.deviation);
    params.side = set_->train.rows;
    params.rotate = augmentation_.rotate;
    params.shift = augmentation_.shift;
    params.scale = augmentation_.scale;
    params.flip = augmentation_.flip;

    // One record fills both fields, whichever is wanted.
    tensor::View x, labels;
    for (const Wanted& wanted : fields) (wanted.field == "image" ? x : labels) = wanted.into;
    if (!x.present()) x = builder.buffer(1, rows, fields_[0].width, builder.real(), tape::Role::activation, "images");
    if (!labels.present()) labels = builder.buffer(1, rows, 1, tensor::DType::i32, tape::Role::activation, "labels");
    ops::Record record{&ops::gather_images::kDef, params, {}, 0, "data"};
    record.slots[slot::images] = resident_of(part).images;
    record.slots[slot::labels] = resident_of(part).labels;
    record.slots[slot::subset] = subset_[index_of(part)];
    record.slots[slot::state] = builder.store().state();
    record.slots[slot::x] = x;
    record.slots[slot::y] = labels;
    builder.append(std::move(record));
    std::vector<tensor::View> views;
    for (const Wanted& wanted : fields) views.push_back(wanted.field == "image" ? x : labels);
    return views;
}

}  // namespace millrace::data
