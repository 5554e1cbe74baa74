"""Words the refusals of grading: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "link": "it is a link, or below a link; grade the file itself by its own path",
        "no regular file": "it is a pipe, a device or a socket, which is never opened; grade a regular file",
        "folder": "it is a folder",
        "too deep": "it is more than {depth} folders deep",
        "folder not listed": "this folder cannot be listed: {why}",
        "file too large": "this file has {nbytes:,} bytes; at most {most:,} are read",
        "UTF-16": "this file is in UTF-16, which Python does not read; save it in UTF-8",
        "other encoding": "this file declares the encoding {encoding}; save it as UTF-8 or Latin-1",
        "machine too busy": "the machine was too busy to read this file within {seconds:g} s; grade it again",
        "Python crashed": "Python crashed on this file, or took too long to read it ({why}); make it shorter or simpler",
        "sandbox lost": "the sandbox was {why} twice, and this file may not be the cause; grade it again",
        "grader failed": "the grader itself failed on this file ({why}); the other rows are not affected",
        "no report": "the run failed, and its report cannot be read",
        "output": "it printed more than {most:,} bytes; print less, or allow more with --limit output=64M",
        "memory": "its processes used more than {most:,} bytes of memory together; use less, or allow more with --limit memory=2048M",
        "files": "it wrote more than {most:,} bytes to files; write less, or allow more with --limit files=64M",
        "result": "the run sent back more than {most:,} bytes; a solution needs far fewer",
        "killed": "the process was killed, probably because memory ran out; use less memory",
        "signal": "the process was ended by signal {signal} ({name}); leave its memory and signals alone",
        "exited": "the process exited with code {code} before its run was over; let the function return instead",
        "puzzle at fault": "this puzzle cannot be graded here: {fault}; ask its author to fix it",
        "not at this size": "there is no {slug} at this size",
        "shown size only": "works only at the shown size ({shown}); with {size} it fails: {why}",
        "file not judged": "this file cannot be judged: {why}",
    }
)
