#include "train/run_files.h"

#include "base/log.h"

namespace millrace::train {

std::string RunFiles::write() {
    if (report_ == nullptr) return {};
    const models::RunReport report = report_(loop_.engine().model(), loop_.engine().store());
    for (const models::RunFile& file : report.files)
        if (const auto written = io::write_atomically(folder_ / file.name, file.content); !written.ok())
            MILLRACE_LOG(warn, "{}", written.error().text());
    return report.summary;
}

base::Status RunFiles::on_epoch(EpochReport& /*report*/) {
    write();
    return base::ok();
}

base::Status RunFiles::on_stop(RunResult& result) {
    if (const std::string summary = write(); !summary.empty() && !result.was_complete) MILLRACE_LOG(info, "{}", summary);
    return base::ok();
}

}  // namespace millrace::train
