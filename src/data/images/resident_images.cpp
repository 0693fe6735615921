#include "data/images/resident_images.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

base::Status check(const char* which, const LabeledImages& images) {
    if (images.count == 0) return base::Error{fmt::format("the {} set has no images", which)};
    if (images.count > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
        return base::Error{fmt::format("the {} set has {} images; at most 2^31 - 1 would be right", which, images.count)};
    return base::ok();
}

}  // namespace

ResidentImages::ResidentImages(std::shared_ptr<const ImageSet> set, Augmentation augmentation, base::Rank rank)
    : ResidentSource(rank), set_(std::move(set)), augmentation_(augmentation) {
    fields_ = {{"image", Field::Kind::real, static_cast<std::int32_t>(set_->train.rows * set_->train.columns)},
               {"label", Field::Kind::integer, 1, static_cast<std::int32_t>(set_->classes), {}, set_->class_names}};
    order_[index_of(Part::train)].assign(set_->split.training.begin(), set_->split.training.end());
    order_[index_of(Part::validation)].assign(set_->split.validation.begin(), set_->split.validation.end());
    order_[index_of(Part::test)].resize(set_->test.count);
    std::iota(order_[index_of(Part::test)].begin(), order_[index_of(Part::test)].end(), 0);
}

base::Status ResidentImages::declare_tables(tape::Store& store) {
    MILLRACE_TRY(check("training", set_->train));
    MILLRACE_TRY(check("test", set_->test));
    if (samples(Part::train) == 0)
        return base::Error{"all training images are held out for validation; a smaller data.validation would be right"};
    if (augmentation_.enabled && set_->train.rows != set_->train.columns)
        return base::Error{
            fmt::format("images of {} x {} cannot be augmented; data.augment = false, or square images, would be right",
                        set_->train.rows, set_->train.columns)};
    const auto declare_images = [&](const std::string& name, const LabeledImages& images) {
        const auto count = static_cast<std::int32_t>(images.count);
        return Resident{add_table(store, name + " images", tensor::DType::u8, count, fields_[0].width, images.pixels),
                        add_table(store, name + " labels", tensor::DType::u8, count, 1, images.labels)};
    };
    train_ = declare_images("training", set_->train);
    test_ = declare_images("test", set_->test);
    for (const Part part : kAllParts) subset_[index_of(part)] = add_order(store, part);
    return base::ok();
}

std::vector<tensor::View> ResidentImages::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                 std::span<const Wanted> fields) {
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

    const Gathered places = places_of(builder, fields_, rows, fields);
    const Resident& from = part == Part::test ? test_ : train_;
    builder.append(tape::record_of(
        &ops::gather_images::kDef, params, "data",
        {from.images, from.labels, subset_[index_of(part)], builder.store().state(), places.fields[0], places.fields[1]}));
    return places.wanted;
}

}  // namespace millrace::data
