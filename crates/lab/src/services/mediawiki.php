
# What an operator of a small wiki sets: memory shared by PHP's processes for small things, parsed pages in the
# database, and messages in files.
$wgMainCacheType = CACHE_ACCEL;
$wgParserCacheType = CACHE_DB;
$wgSessionCacheType = CACHE_DB;
$wgCacheDirectory = '%DIRECTORY%/cache';
$wgLocalisationCacheConf['manualRecache'] = true;
# A page view does no other work, so that equal requests cost the same.
$wgJobRunRate = 0;
$wgUseFileCache = false;
# The lab measures its gateway's limits, not the wiki's.
$wgDisableOutputCompression = true;
