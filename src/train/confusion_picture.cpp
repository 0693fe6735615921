#include "train/confusion_picture.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "models/class_report.h"

namespace millrace::train {

base::Status ConfusionPicture::on_epoch(EpochReport& report) {
    const std::size_t member = selection_.best().member;
    if (report.best && !report.validation.empty() && report.validation[member].classes)
        write(*report.validation[member].classes, member, data::Part::validation);
    return base::ok();
}

base::Status ConfusionPicture::on_stop(RunResult& result) {
    if (!result.stopped && result.classes)
        write(*result.classes, best_member(result), result.tested ? data::Part::test : data::Part::validation);
    return base::ok();
}

void ConfusionPicture::write(const models::ClassReport& classes, std::size_t member, data::Part part) {
    Engine& engine = loop_.engine();
    const auto names = models::class_names(engine.model().wants(), engine.source().fields(), classes.classes.size());
    std::string about =
        fmt::format("{} {} of {}, best weights", base::print_count(classes.samples), loop_.setup().unit, data::name_of(part));
    if (loop_.members() > 1) about += fmt::format(" of member {}", member);
    // A run is as good without it.
    const auto written = io::write_atomically(folder_ / "confusion.svg", models::confusion_svg(classes, names, about));
    if (!written.ok()) MILLRACE_LOG(warn, "{}", written.error().text());
}

}  // namespace millrace::train
