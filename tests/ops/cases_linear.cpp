// Gradients of products, and dense layers for every shape of tiles.

#include "dense_case.h"

namespace millrace::ops::cases {

std::vector<OpCase> tile_cases() {
    using namespace dense;
    const Config gelu{Norm::none, Activation::gelu, 0}, evaluated{Norm::batch_eval, Activation::relu, 0};
    std::vector<OpCase> cases;
    // rows, columns and summed elements end inside of tiles, slices and panels; columns inside of 16 bytes
    const Shape many{1, 1, 700, 136, 264}, members{3, 2, 130, 200, 72};
    for (const Config& config : {gelu, kHead, kHidden, kLinear, evaluated}) cases.push_back(forward(many, config));
    for (const Config& config : {kHead, kHidden, kLinear}) cases.push_back(forward(members, config));
    for (const Activation activation : kActivations) cases.push_back(forward({1, 1, 150, 40, 96}, {Norm::none, activation, 0}));
    for (const Shape& shape : {Shape{1, 1, 300, 64, 75}, Shape{1, 1, 64, 64, 64}, Shape{1, 1, 1, 8, 8}, Shape{1, 1, 129, 72, 16}})
        cases.push_back(forward(shape, kHead));
    for (const Shape& shape : {Shape{1, 1, 700, 264, 136}, Shape{3, 2, 130, 72, 200}, Shape{1, 1, 65, 40, 8}}) {
        OpCase c = dgrad(shape, "plain");
        cases.push_back(c);
        c.name += "/adding";
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c.name += "/stat";
        c.slots[linear_dgrad::dx].element = Element::stat;
        cases.push_back(c);
        c = wgrad(shape, "plain");
        cases.push_back(c);
        c.name += "/adding";
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
    return cases;
}

std::vector<PairCase> pair_cases() {
    using namespace dense;
    const Config gelu{Norm::none, Activation::gelu, 0}, relu{Norm::none, Activation::relu, 0.2f};
    std::vector<PairCase> cases;
    // rows and columns that end inside of tiles and panels, a single row, members, groups side by side
    const Shape many{1, 1, 700, 136, 264}, members{3, 1, 130, 200, 72}, groups{1, 2, 129, 72, 40};
    for (const Shape& s : {many, members, groups, Shape{1, 1, 65, 8, 40}, Shape{2, 1, 1, 16, 8}})
        for (const Config& config : {gelu, relu, kLinear, kHead, kHidden}) {
            PairCase pair{dgrad(s, "pair"), backward({s.k, s.g, s.b, 1, s.in}, config, "_pair")};
            if (s.g > 1)
                for (Slot* slot : {&pair.dgrad.slots[linear_dgrad::dx], &pair.backward.slots[dense_backward::dy]})
                    slot->layout.groups_in_row = true;
            cases.push_back(pair);
        }
    PairCase adding = cases.front();
    adding.dgrad.slots[linear_dgrad::dx].values = uniform(-1, 1);
    adding.dgrad.accumulates(linear_dgrad::dx);
    adding.backward.name += "/adding";
    cases.push_back(adding);
    return cases;
}

void add_linear_cases(std::vector<OpCase>& cases) {
    using namespace dense;
    for (const Shape& shape : kShapes) {
        cases.push_back(dgrad(shape, "plain"));
        cases.push_back(wgrad(shape, "plain"));
    }
    for (const Shape& shape : kBatches) cases.push_back(dgrad(shape, "batches"));
    for (const Shape& shape : kMany) {
        OpCase c = dgrad({shape.k, shape.g, shape.b, shape.out, shape.in}, "many");
        if (shape.k == 2) {
            c.slots[linear_dgrad::dx].values = uniform(-1, 1);
            c.accumulates(linear_dgrad::dx);
        }
        cases.push_back(c);
    }
    cases.push_back(wgrad({1, 1, 32, 784, 128}, "plain"));
    cases.push_back(dgrad({1, 1, 32, 256, 384}, "plain"));
    // long operands, which the CPU shares out by rows
    cases.push_back(wgrad({1, 1, 2003, 271, 131}, "plain"));
    cases.push_back(wgrad({2, 1, 700, 19, 390}, "plain"));
    cases.push_back(dgrad({1, 1, 401, 37, 700}, "plain"));
    // more tiles than a GPU computes at once: of 64 x 64 where most of 128 x 128 would be empty
    for (const Shape& many : {Shape{4, 52, 70, 136, 8}, Shape{4, 34, 70, 136, 120}}) {
        OpCase tiles = wgrad(many, "tiles_adding");
        tiles.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(tiles.accumulates(linear_wgrad::dw));
    }
    cases.push_back(wgrad({2, 134, 37, 9, 5}, "tiles"));
    cases.push_back(wgrad({2, 134, 70, 101, 99}, "tiles"));
    cases.push_back(dgrad({1, 1, 0, 5, 3}, "plain"));
    cases.push_back(wgrad({2, 1, 0, 5, 3}, "plain"));
    for (const Shape& many : {Shape{1, 1, 4099, 72, 48}, Shape{1, 1, 4100, 65, 48}, Shape{2, 1, 4097, 5, 3},
                              Shape{1, 1, 4101, 264, 4}, Shape{1, 2, 4096, 40, 1}}) {
        cases.push_back(dgrad(many, "plain"));
        cases.push_back(wgrad(many, "plain"));
        OpCase c = dgrad(many, "stat_adding");
        c.slots[linear_dgrad::dx].element = Element::stat;
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
    }
    // more columns on the side of x than the weight has
    for (const Shape& shape : {kSmall, Shape{2, 1, 37, 13, 9}, Shape{1, 1, 300, 65, 48}, Shape{1, 1, 4102, 65, 48},
                               Shape{2, 1, 2100, 65, 24}, Shape{1, 1, 2049, 9, 3}}) {
        const int wide = (shape.in + 8) / 8 * 8;
        OpCase c = dgrad(shape, "wide");
        c.slots[linear_dgrad::dx].cols = wide;
        cases.push_back(c);
        c.name = fmt::format("linear_dgrad/wide_adding/{}", shape.text());
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c = wgrad(shape, "wide");
        c.slots[linear_wgrad::x].cols = wide;
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/wide_adding/{}", shape.text());
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
    // with the bias's sums: in every form, rows that end inside of slices, sums that blocks share, members and groups; with
    // windows odd numbers of columns whose rows begin at multiples of 16 bytes
    for (const Shape& shape : {kSmall, Shape{2, 1, 0, 5, 3}, Shape{1, 1, 300, 64, 24}, Shape{1, 2, 777, 136, 72},
                               Shape{2, 1, 1000, 264, 200}, Shape{1, 1, 4099, 72, 48}, Shape{1, 1, 4097, 65, 3}}) {
        OpCase c = wgrad(shape, "bias");
        c.slot(linear_wgrad::dbias, Element::stat, shape.k, shape.g, 1, shape.out, poison());
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/bias_adding/{}", shape.text());
        c.slots[linear_wgrad::dbias].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dbias));
    }
    for (const Shape& shape : {Shape{1, 1, 777, 61, 77}, Shape{2, 1, 520, 133, 13}}) {
        OpCase c = wgrad(shape, "bias_windows");
        c.slot(linear_wgrad::dbias, Element::stat, shape.k, shape.g, 1, shape.out, poison(), kWindow);
        window(c, linear_wgrad::dz, {0, 3, false, false});
        window(c, linear_wgrad::x, {0, 3, false, false});
        cases.push_back(c);
    }
    for (const Shape& shape : {kSmall, Shape{1, 1, 300, 64, 24}}) {
        OpCase c = dgrad(shape, "stat");
        c.slots[linear_dgrad::dx].element = Element::stat;
        cases.push_back(c);
        c.name = fmt::format("linear_dgrad/stat_adding/{}", shape.text());
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
    }
    for (const Shape& shape : {kSmall, Shape{1, 2, 32, 16, 24}}) {
        OpCase c = dgrad(shape, "adding");
        c.slots[linear_dgrad::dx].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_dgrad::dx));
        c = wgrad(shape, "adding");
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));

        c = dgrad(shape, "windows");  // w: a column window of the layer's weight; dx: side by side in the concatenated gradient
        window(c, linear_dgrad::w, kWindow);
        window(c, linear_dgrad::dz, {0, 3, false, false});
        window(c, linear_dgrad::dx, kConcat);
        cases.push_back(c);
        c = wgrad(shape, "windows");
        window(c, linear_wgrad::dz, kConcat);
        window(c, linear_wgrad::x, {2, 1, false, true});
        window(c, linear_wgrad::dw, kWindow);
        cases.push_back(c);
        c.name = fmt::format("linear_wgrad/windows_adding/{}", shape.text());
        c.slots[linear_wgrad::dw].values = uniform(-1, 1);
        cases.push_back(c.accumulates(linear_wgrad::dw));
    }
}

}  // namespace millrace::ops::cases
